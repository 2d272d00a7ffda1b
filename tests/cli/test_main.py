"""Tests the modules that the command line loads, and its end on signals and errors."""

import errno
import json
import math
import os
import signal
import subprocess
import sys

import pytest
from commands import Answer, mlcl
from mlflow.exceptions import MlflowException
from tiny_models import tiny_model

from mlcl import __main__
from mlcl.cli import main
from mlcl.cli.output import print_json
from mlcl.cli.upkeep import remove
from mlcl.data.cache_entries import CacheEntry
from mlcl.errors import UserError

HEAVY = {"torch", "sklearn", "scipy", "mlflow", "pandas", "pyarrow", "ray", "optuna", "matplotlib"}


@pytest.mark.parametrize(
    ("modules", "allowed"),
    [
        ("mlcl.cli.main", set()),
        ("mlcl.results.comparison_text, mlcl.results.settings", {"scipy", "mlflow", "pandas", "pyarrow"}),
    ],
)
def test_help_and_comparisons_load_no_more_than_they_need(modules, allowed):
    code = f"import sys, {modules}\nsys.exit(' '.join({HEAVY - allowed} & set(sys.modules)) or 0)"
    process = python("-c", code)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    "command", [("run", "job.yaml"), ("sweep", "job.yaml", "space.yaml", "--seeds", "3")]
)
def test_a_dry_run_loads_neither_pandas_nor_what_a_training_needs(folder, command):
    process = python("-X", "importtime", "-m", "mlcl", *command, "--dry-run")
    loaded_modules = {line.rpartition("|")[2].strip() for line in process.stderr.splitlines()}
    assert "pyarrow.parquet" in loaded_modules, process.stderr
    assert not {"pandas", "scipy.sparse", "scipy.special", "sklearn", "ray", "mlflow"} & loaded_modules


def test_a_dry_run_that_reads_a_transformer_says_nothing_of_its_libraries(folder):
    """Triton, which transformers loads, prints each of its objects that is left at the end."""
    model = tiny_model(folder / "bert", "bert")
    encoder = (
        f"encoder={{name: features, inputs: [transformer], transformer: {{model: {model}, max_length: 8}}}}"
    )
    process = python("-m", "mlcl", "run", "job.yaml", encoder, "--dry-run")
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_while_libraries_are_loaded_is_one_line(number):
    """`losses` loads torch; the signal arrives while it does."""
    command = [sys.executable, "-X", "importtime", "-m", "mlcl", "losses"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "mlcl.errors" in line:
                break
        process.send_signal(number)
        # communicate() would lose the lines that the loop has read ahead.
        err, out = process.stderr.read(), process.stdout.read()
    lines = [line for line in err.splitlines() if not line.startswith("import time:")]
    assert (process.returncode, lines, out) == (130, ["stopped"], "")


URL = "http://me:{}@host:5000/api/2.0 failed with code 500"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MlflowException(URL.format("secret")), f"MlflowException: {URL.format('***')}"),
        (OSError(errno.ENOSPC, "full", "a"), "no space left on the device for a"),
        (OSError(errno.ENOLCK, "no"), "give a --home on a disk with file locks: there are none"),
        (OSError(errno.EFBIG, "no", "a"), "larger than `ulimit -f` or the disk allows for a"),
        (PermissionError(errno.EACCES, "no", "a"), "no permission for a"),
        (OSError(errno.EROFS, "no", "a"), "the disk is read-only for a"),
        (OSError(errno.ENOTDIR, "no", "a"), "a file is where a folder should be for a"),
        (OSError(errno.EXDEV, "no", "a"), "give a --home on a disk that renames: this one does not, for a"),
    ],
)
def test_a_fault_of_the_server_or_the_disk_is_one_line_without_a_password(monkeypatch, error, said):
    def report():
        raise error

    monkeypatch.setattr(main, "app", report)
    answer = mlcl(env={"MLFLOW_TRACKING_URI": "http://me:secret@host:5000/"})
    assert (answer.status, answer.err) == (3, f"failed: {said}\n")


@pytest.mark.parametrize(
    ("find", "error", "said"),
    [
        ("cwd", FileNotFoundError, "the current folder was removed: change to another one"),
        ("home", RuntimeError, f"no home folder of user {os.getuid()}: set HOME to one"),
    ],
)
def test_a_folder_that_libraries_need_and_that_is_not_there_is_one_line(monkeypatch, find, error, said):
    def missing():
        raise error

    monkeypatch.setattr(main.Path, find, missing)
    answer = mlcl("list")
    assert (answer.status, answer.err) == (3, f"failed: {said}\n")


RECORDS, STORE = "mlcl.store.database.Database.runs", "mlcl.tracking.Tracker.open_existing"


@pytest.mark.parametrize(
    ("words", "work"),
    [
        ("list", RECORDS),
        ("show x", RECORDS),
        ("open x", RECORDS),
        ("effect x lr", RECORDS),
        ("compare x", STORE),
        ("report x", STORE),
        ("export x", STORE),
        ("posthoc x", STORE),
        ("predict x x.csv", "mlcl.training.export.load_model"),
        ("data prepare digits", "mlcl.data.prepare"),
        ("doctor", "mlcl.service.doctor.run_checks"),
        ("clean", "mlcl.data.cache_entries.cache_entries"),
        ("init x.csv", "mlcl.service.starter.starter.start"),
        ("import x", "mlcl.service.import_home.import_home"),
    ],
)
def test_a_stop_in_the_middle_of_a_command_is_no_other_error(monkeypatch, tmp_path, words, work):
    def struck(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, struck)
    assert mlcl(*words.split(), "--home", tmp_path) == Answer(130, "", "")


@pytest.mark.parametrize(("error", "told"), [(EOFError, UserError), (KeyboardInterrupt, KeyboardInterrupt)])
def test_a_question_without_an_answer_names_its_option(monkeypatch, tmp_path, error, told):
    def answer(_question):
        raise error

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    (tmp_path / "a").touch()
    with pytest.raises(told, match="--yes" if told is UserError else None):
        remove([CacheEntry(tmp_path / "a", "a", "", 0)], dry_run=False, ask=True, as_json=False)
    assert (tmp_path / "a").exists()


def python(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


def limited(code, *words, gib=2.0):
    """Runs `code` in a process whose address space is limited to `gib` GiB."""
    limit = f"import resource\nresource.setrlimit(resource.RLIMIT_AS, ({int(gib * 2**30)},) * 2)\n"
    return python("-c", limit + code, *words)


@pytest.mark.parametrize("words", ["list", "--help"])
def test_what_loads_no_library_works_with_few_addresses(monkeypatch, tmp_path, words):
    monkeypatch.setenv("MLCL_HOME", str(tmp_path))
    process = limited("from mlcl.__main__ import main\nmain()", *words.split(), gib=0.25)
    assert (process.returncode, "failed" in process.stderr) == (0, False)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("ImportError('x.so: failed to map segment')", "x.so: failed to map segment"),
        ("MemoryError()", "out of memory"),
        ("OSError('x.so: failed to map segment')", "x.so: failed to map segment"),
        ('RuntimeError("CPU: can\'t allocate memory")', "CPU: can't allocate memory"),
    ],
)
def test_an_error_that_the_limit_explains_is_one_line(error, why):
    code = f"from mlcl.cli import main\ndef app(): raise {error}\nmain.app = app\nmain.main()"
    process = limited(code)
    assert (process.returncode, process.stderr.count("\n")) == (3, 1)
    assert process.stderr.startswith(f"failed: `ulimit -v` is 2.0 GiB ({why})")


def test_the_limit_does_not_explain_every_error():
    code = "from mlcl.cli import main\ndef app(): raise OSError('no server')\nmain.app = app\nmain.main()"
    assert limited(code).stderr.endswith("failed: OSError: no server\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_while_libraries_are_kept_apart_reaches_the_terminal(number):
    code = f"""
import os
from mlcl import __main__
from mlcl.cli import main
from mlcl.service.process.stderr import stderr_to_file
def app():
    with stderr_to_file():
        os.kill(os.getpid(), {int(number)})
        while True: pass
main.app = app
__main__.main()
"""
    process = python("-c", code)
    assert (process.returncode, process.stderr) == (130, "stopped\n")


def test_what_the_caller_has_closed_is_open(monkeypatch):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    __main__._open_closed_streams()
    assert (sys.stdin.read(), sys.stdout.write("x"), sys.stderr.write("x")) == ("", 1, 1)


def test_a_json_document_has_null_for_what_json_cannot_write(capsys):
    print_json({"score": math.nan, "rows": [{"low": -math.inf, "high": 1.5}], "pair": (1, math.inf)})
    assert json.loads(capsys.readouterr().out) == {
        "score": None, "rows": [{"low": None, "high": 1.5}], "pair": [1, None],
    }  # fmt: skip
