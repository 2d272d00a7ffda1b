"""Keeps what libraries write to standard error apart from what the command says there."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from mlcl.errors import UserError

FILE = "stderr.log"
_terminals: list[TextIO] = []


def own_stderr() -> TextIO | None:
    """The terminal's standard error while `stderr_to_file` replaces it by a file; None otherwise."""
    return _terminals[-1] if _terminals else None


@contextmanager
def stderr_to_file() -> Iterator[Callable[[Path], None]]:
    """Makes standard error a file while the context is open, also for C++ code.

    Yields a function that takes a folder: the file, a temporary one at first, becomes FILE of that folder. It
    stays there unless it is empty. The trace of an error is written to it, and its name becomes a note of the
    error. Nothing happens where sys.stderr is another stream, as in tests.
    """
    try:
        applies = sys.stderr.fileno() == 2 and not _terminals
    except (OSError, ValueError):
        applies = False
    if not applies:
        yield lambda _folder: None
        return
    path: list[Path] = []
    terminal = os.dup(2)

    def move(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        sys.stderr.flush()
        with (folder / FILE).open("wb") as file:
            if path:
                file.write(path[-1].read_bytes())
            else:
                first.seek(0)
                shutil.copyfileobj(first, file)
            os.dup2(file.fileno(), 2)
        path.append(folder / FILE)

    with tempfile.TemporaryFile() as first, os.fdopen(os.dup(terminal), "w", errors="replace") as own:
        os.dup2(first.fileno(), 2)
        _terminals.append(own)
        try:
            yield move
        except UserError:
            raise
        except Exception as error:
            if path and path[-1].exists():  # the folder may have been removed with its command
                traceback.print_exc(file=sys.stderr)
                error.add_note(f"more in {path[-1]}")
            raise
        finally:
            _terminals.pop()
            sys.stderr.flush()
            own.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            if path and path[-1].exists() and not path[-1].stat().st_size:
                path[-1].unlink()
