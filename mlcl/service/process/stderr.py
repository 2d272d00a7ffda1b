"""Redirects standard error of libraries to a file, so that the terminal shows only the command's messages."""

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

from mlcl.backports import add_note
from mlcl.errors import UserError

FILE = "stderr.log"
_terminals: list[TextIO] = []


def own_stderr() -> TextIO | None:
    """Returns a stream to the original standard error while `stderr_to_file` is open; None otherwise."""
    return _terminals[-1] if _terminals else None


@contextmanager
def stderr_to_file() -> Iterator[Callable[[Path], None]]:
    """Redirects standard error, also of C++ code, to a file while the context is open.

    The context yields a function that moves the file, which is temporary at first, to FILE in a folder. If
    the file was moved, the traceback of an exception other than UserError is written to it, the exception
    gets a note with its path, and an empty file is removed at the end. Nothing is redirected if sys.stderr is
    not the process's standard error, as in tests.
    """
    try:
        redirects = sys.stderr.fileno() == 2 and not _terminals
    except (OSError, ValueError):
        redirects = False
    if not redirects:
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
                temp_file.seek(0)
                shutil.copyfileobj(temp_file, file)
            os.dup2(file.fileno(), 2)
        path.append(folder / FILE)

    with tempfile.TemporaryFile() as temp_file, os.fdopen(os.dup(terminal), "w", errors="replace") as stream:
        os.dup2(temp_file.fileno(), 2)
        _terminals.append(stream)
        try:
            yield move
        except UserError:
            raise
        except Exception as error:
            if path and path[-1].exists():  # the folder may have been removed with its command
                traceback.print_exc(file=sys.stderr)
                add_note(error, f"more in {path[-1]}")
            raise
        finally:
            _terminals.pop()
            sys.stderr.flush()
            stream.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            if path and path[-1].exists() and not path[-1].stat().st_size:
                path[-1].unlink()
