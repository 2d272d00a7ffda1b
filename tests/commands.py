"""Runs `mlcl` in the process of a test, with the output and exit status that a new process would have."""

import io
import json
import os
import signal
import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from unittest.mock import patch

from typer.main import get_command

from mlcl.cli import main

TYPER_APP = main.app
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Answer:
    status: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out, parse_constant=lambda name: sys.exit(f"{name} is no JSON"))


@cache
def _command():
    """Returns the command line that typer would otherwise build for each call, in a quarter of a second."""
    return get_command(TYPER_APP)


def mlcl(*words, env=None):
    """Runs a command and returns its answer; `env` is added to its environment."""
    handlers, out, err = {n: signal.getsignal(n) for n in SIGNALS}, io.StringIO(), io.StringIO()
    contexts = (
        patch.object(sys, "argv", ["mlcl", *map(str, words)]), patch.dict(os.environ, env or {}),
        redirect_stdout(out), redirect_stderr(err),
    )  # fmt: skip
    try:
        with ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context)
            if main.app is TYPER_APP:  # a test may have replaced the app
                stack.enter_context(patch.object(main, "app", _command()))
            main.main()
    except SystemExit as error:
        return Answer(error.code or 0, out.getvalue(), err.getvalue())
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    raise AssertionError("it has not ended")
