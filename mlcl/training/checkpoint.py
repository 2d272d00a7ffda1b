"""Checkpoints, and files that a kill leaves whole: written beside their place, then renamed."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from mlcl.errors import UserError

CHECKPOINT = "checkpoint.pt"
VERSION = 1


def remove_left(path: Path) -> None:
    """Removes the unfinished files and folders that killed writers of `path` left beside it."""
    for stale in path.parent.glob(f".{path.name}.*.partial"):
        if stale.is_dir():
            shutil.rmtree(stale)
        else:
            stale.unlink(missing_ok=True)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A path beside `path` that takes its name when the block ends well, and is removed when not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_left(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Writes `state`; a kill at any moment leaves either the old file or the new one."""
    with new_file(path) as partial, partial.open("wb") as file:
        torch.save({"version": VERSION, **state}, file)
        file.flush()
        os.fsync(file.fileno())


def load_checkpoint(path: Path, *, job_hash: str, fingerprint: str) -> dict[str, Any]:
    """The state of a checkpoint of this job on this data.

    Tensors and plain containers only: nothing is unpickled that could run code. Raises UserError for a
    damaged file, another format, another job or other data.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            "not a readable checkpoint", file=path, found=reason, allowed="--fresh starts anew"
        ) from None
    if not isinstance(state, dict) or state.get("version") != VERSION:
        found = state.get("version") if isinstance(state, dict) else type(state).__name__
        raise UserError("another checkpoint format", file=path, found=found, allowed=VERSION)
    for key, expected in (("job_hash", job_hash), ("fingerprint", fingerprint)):
        if state[key] != expected:
            raise UserError(
                "checkpoint of something else", file=path, key=key, found=state[key], allowed=expected
            )
    return state
