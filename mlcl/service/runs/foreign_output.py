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
_own: list[TextIO] = []


def own_stderr() -> TextIO | None:
    """Where the command itself writes while libraries are kept apart; None where they are not."""
    return _own[-1] if _own else None


@contextmanager
def foreign_output_apart() -> Iterator[Callable[[Path], None]]:
    """While inside, standard error is a file, also that of C++ code; `own_stderr` is the terminal.

    The file begins as a temporary one and becomes FILE of the folder that the yielded function was called
    with last, where it stays unless it is empty. An error's trace is written to it, and its name becomes a
    note of the error. Does nothing where sys.stderr is another stream, as in tests.
    """
    try:
        apart = sys.stderr.fileno() == 2 and not _own
    except (OSError, ValueError):
        apart = False
    if not apart:
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
        _own.append(own)
        try:
            yield move
        except UserError:
            raise
        except Exception as error:
            if path and path[-1].exists():  # not where the folder went with its command
                traceback.print_exc(file=sys.stderr)
                error.add_note(f"more in {path[-1]}")
            raise
        finally:
            _own.pop()
            sys.stderr.flush()
            own.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            if path and path[-1].exists() and not path[-1].stat().st_size:
                path[-1].unlink()
