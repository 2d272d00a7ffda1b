"""Tests of the output of libraries to standard error while a command runs."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from mlcl.errors import MachineError
from mlcl.service.engine.command import _lock_folder
from mlcl.service.process.stderr import stderr_to_file
from mlcl.store import RunFolder

CODE = """
import logging, os, sys, warnings
from pathlib import Path
from mlcl.cli.output import errors
from mlcl.service.process.stderr import stderr_to_file

logging.basicConfig()
with stderr_to_file() as aside:
    os.write(2, b"early\\n")
    aside(Path(sys.argv[1]))
    {what}
    errors.out("ours")
print("after", file=sys.stderr)
"""
FOREIGN = """
    os.write(2, b"C++\\n")
    logging.error("logged")
    warnings.warn("warned")
    print("printed", file=sys.stderr)
"""


def run(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_goes_to_a_file_and_what_is_ours_to_the_terminal(tmp_path):
    process = run(CODE.format(what=FOREIGN), tmp_path)
    assert (process.returncode, process.stderr) == (0, "ours\nafter\n")
    text = (tmp_path / "stderr.log").read_text()
    assert [word for word in ("early", "C++", "logged", "warned", "printed") if word not in text] == []


def test_the_progress_of_a_call_from_python_goes_to_the_terminal(tmp_path):
    """Tests the default listener of `mlcl.sweep` and `mlcl.compare` in a script, which prints lines."""
    statement = "from mlcl.api.common import print_line; print_line('[1/4] trial 0 COMPLETE')"
    process = run(CODE.format(what=statement), tmp_path)
    assert (process.returncode, process.stderr) == (0, "[1/4] trial 0 COMPLETE\nours\nafter\n")
    assert (tmp_path / "stderr.log").read_text() == "early\n"


@pytest.mark.parametrize("gone", [False, True])
def test_an_error_has_its_trace_in_the_file_and_the_files_name_as_a_note(tmp_path, gone):
    removal_code = "import shutil; shutil.rmtree(sys.argv[1]); " if gone else ""
    process = run(CODE.format(what=f"{removal_code}raise RuntimeError('why')"), tmp_path / "a")
    file = tmp_path / "a" / "stderr.log"
    assert process.stderr.endswith("RuntimeError: why\n" + ("" if gone else f"more in {file}\n"))
    assert gone or "RuntimeError: why" in file.read_text()


def test_an_empty_file_is_removed(tmp_path):
    process = run(CODE.replace('os.write(2, b"early\\n")', "pass").format(what="pass"), tmp_path)
    assert (process.returncode, list(tmp_path.iterdir())) == (0, [])


def test_what_made_a_first_command_fail_outlives_its_folder(tmp_path, monkeypatch):
    standard_error = open(2, "w", closefd=False)  # noqa: SIM115 (pytest sets another file)
    monkeypatch.setattr(sys, "stderr", standard_error)
    folder = RunFolder(tmp_path / "sweeps" / "new")
    sweep = SimpleNamespace(kind="sweep", name="new", option="--name")

    def fail():
        with stderr_to_file() as move_stderr, _lock_folder(tmp_path, sweep, lambda: folder, move_stderr):
            os.write(2, b"of the raylet\n")
            raise MachineError("Ray did not start")

    with pytest.raises(MachineError) as error:
        fail()
    assert error.value.__notes__ == [f"more in {tmp_path / 'stderr.log'}"]
    text = (tmp_path / "stderr.log").read_text()
    assert text.startswith("of the raylet\n")
    assert "Ray did not start" in text
    assert not (tmp_path / "sweeps" / "new").exists()


@pytest.mark.parametrize("as_json", [True, False])
def test_an_unexpected_error_of_a_command_is_one_line_with_the_file(tmp_path, as_json):
    code = """
import sys
from mlcl.cli import main
def app():
    error = RuntimeError("a long\\nstory")
    error.__notes__ = ["more in FILE"]
    raise error
main.app = app
main.main()
"""
    process = run(code, *(["--json"] if as_json else []))
    assert (process.returncode, process.stderr) == (3, "failed: RuntimeError: a long story; more in FILE\n")
    assert ('"problem": "RuntimeError: a long story; more in FILE"' in process.stdout) == as_json
