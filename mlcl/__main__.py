"""The entry point of `mlcl` and `python -m mlcl`. It handles Ctrl-C before it imports slow modules."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from types import FrameType

from mlcl.extras import missing_extra

FAILED, STOPPED = 3, 130


def main() -> None:
    """Runs the command line. Ctrl-C or SIGTERM outside of a training prints `stopped` and exits with 130."""
    if "--dry-run" in sys.argv:  # garbage collection would take a fifth of the time of a dry run
        gc.disable()
        atexit.register(_skip_exit_collection)
    _open_closed_streams()
    stderr = os.dup(2)  # descriptor 2 is a file while the output of libraries is redirected
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for names that the locale cannot print
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, partial(_stop, stderr))
    try:
        from mlcl.cli.main import main as run_command
    except ModuleNotFoundError as error:
        if not (text := missing_extra(error)):
            raise
        os.write(stderr, f"error: mlcl {text}\n".encode())
        sys.exit(FAILED)
    run_command()


def _skip_exit_collection() -> None:
    """Skips the garbage collection at exit, except with Triton, which would report uncollected objects."""
    if "triton" not in sys.modules:
        gc.freeze()


def _open_closed_streams() -> None:
    """Opens closed standard streams (`>&-`) on `os.devnull`, so that no other file gets their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 (as long as the process)


def _stop(stderr: int, _signal: int, frame: FrameType | None) -> None:
    with suppress(OSError):  # the terminal may be closed
        os.write(stderr, b"stopped\n")
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            # An exception inside an import may be replaced by another one, or abort native code.
            os._exit(STOPPED)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
