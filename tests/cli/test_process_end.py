"""A process ends with its status, its output and its exit handlers, and without a clean-up of its modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, sys
from mlcl.cli import process_end

class Kept:
    def __del__(self):
        print("cleaned up")

kept = Kept()

def main():
    atexit.register(print, "exit handler")
    sys.stdout.write("no end of line, ")
    {ends}

process_end.run(main)
"""


def run(ends):
    command = [sys.executable, "-c", PROGRAM.format(ends=ends)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("ends", "status"),
    [("pass", 0), ("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit(130)", 130)],
)
def test_the_status_is_mains(ends, status):
    ended = run(ends)
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "no end of line, exit handler\n", "")


@pytest.mark.parametrize(
    ("ends", "said"),
    [("sys.exit('a message')", "a message"), ("raise ValueError('a bug')", "ValueError: a bug")],
)
def test_what_python_has_to_say_it_says_and_ends_as_always(ends, said):
    ended = run(ends)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, said)
    assert ended.stdout == "no end of line, exit handler\ncleaned up\n"


def test_output_that_cannot_be_written_is_an_error_as_always():
    command = [sys.executable, "-c", PROGRAM.format(ends="pass")]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=buffered, check=False
        )
    assert ended.returncode == 120
    assert "No space left on device" in ended.stderr
