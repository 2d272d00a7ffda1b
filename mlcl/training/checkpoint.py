"""Writes and reads checkpoints, with the weights and random states that they hold.

A file is written under another name and then renamed, so a process that is killed leaves no partial file.
A checkpoint has no frozen weights: they come from the pretrained model that the job names, or are drawn again
from the job's seed.
"""

from __future__ import annotations

import errno
import os
import random
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mlcl.errors import UserError
from mlcl.files import new_file

CHECKPOINT = "checkpoint.pt"
PREVIOUS = "checkpoint.previous.pt"
"""The last but one checkpoint, which is loaded if the last one is damaged."""
DAMAGED = "checkpoint.damaged.pt"
"""The new name of a damaged checkpoint, so that it never replaces an undamaged one."""
CHECKPOINTS = (CHECKPOINT, PREVIOUS, DAMAGED)
VERSION = 2


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Writes `state`; renames the last checkpoint to `PREVIOUS`, so that a kill leaves one undamaged.

    Raises OSError, for example on a full disk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path) as partial:
        with partial.open("wb") as file:
            try:
                torch.save({"version": VERSION, **state}, file)
            except RuntimeError as error:
                if isinstance(cause := error.__context__, OSError):  # hidden by an error of the ZIP writer
                    raise OSError(cause.errno, cause.strerror, str(path)) from None
                raise
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            path.replace(path.with_name(PREVIOUS))


class DamagedCheckpointError(UserError):
    """Raised if the content of a checkpoint differs from what was written."""


class UnreadableCheckpointError(OSError):
    """Raised if a checkpoint that may be whole cannot be read now, for lack of memory or a failing disk."""


def last_checkpoint(
    path: Path, *, job_hash: str, fingerprint: str
) -> tuple[Path | None, dict[str, Any] | None, str]:
    """Loads the last undamaged checkpoint, of `path` and `PREVIOUS`, and renames damaged ones to `DAMAGED`.

    Returns the checkpoint's file and state, both None if there is no checkpoint, and a message about damaged
    files, which is empty if no file is damaged. Raises the errors of `load_checkpoint`, except
    DamagedCheckpointError.
    """
    notes = []
    for file in (path, path.with_name(PREVIOUS)):
        if not file.exists():
            continue
        try:
            state = load_checkpoint(file, job_hash=job_hash, fingerprint=fingerprint)
        except DamagedCheckpointError as error:
            notes.append(f"{error.file} is damaged ({error.found})")
            file.replace(path.with_name(DAMAGED))
        else:
            return file, state, "".join(f"{note}: going on from the checkpoint before" for note in notes)
    return None, None, f"{', '.join(notes)}: this training begins anew" if notes else ""


def load_checkpoint(path: Path, *, job_hash: str, fingerprint: str) -> dict[str, Any]:
    """Loads the state of a checkpoint: tensors and plain containers, so that unpickling runs no code.

    Raises DamagedCheckpointError, UnreadableCheckpointError, or UserError for another format, job or data.
    """
    try:
        with zipfile.ZipFile(path) as archive:  # PyTorch's format, with a checksum for each tensor
            bad_name = archive.testzip()
        if bad_name is not None:
            raise ValueError(f"the checksum of {bad_name} is wrong")
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # Damaged bytes make PyTorch and zipfile raise almost anything.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if _may_be_intact(error):
            raise UnreadableCheckpointError(f"{path} cannot be read now: {reason}") from None
        raise DamagedCheckpointError("not a readable checkpoint", file=path, found=reason) from None
    if not isinstance(state, dict) or state.get("version") != VERSION:
        version = state.get("version") if isinstance(state, dict) else type(state).__name__
        raise UserError("another checkpoint format", file=path, found=version, allowed=VERSION)
    for key, expected in (("job_hash", job_hash), ("fingerprint", fingerprint)):
        if state[key] != expected:
            problem = "checkpoint of something else"
            raise UserError(problem, file=path, key=key, found=state[key], allowed=expected)
    return state


def _may_be_intact(error: Exception) -> bool:
    """Whether an error in reading comes from the machine, so that the file may be undamaged."""
    if isinstance(error, OSError):
        return error.errno != errno.EINVAL  # EINVAL: a seek to an offset that damaged bytes give
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)  # PyTorch's message


def trained_weights(module: nn.Module) -> dict[str, Tensor]:
    """Returns the state of a module without its frozen parameters; the tensors are not copied."""
    frozen_names = _frozen_names(module)
    return {name: value.detach() for name, value in module.state_dict().items() if name not in frozen_names}


def unshare_tensors(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns weights on the CPU, contiguous and without shared memory, which safetensors refuses."""
    tensors: dict[str, Tensor] = {}
    addresses = set[int]()
    for name, tensor in weights.items():
        cpu_tensor = tensor.cpu().contiguous()
        address = cpu_tensor.untyped_storage().data_ptr()
        tensors[name] = cpu_tensor.clone() if address in addresses else cpu_tensor
        addresses.add(address)
    return tensors


def load_trained_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Loads weights that `trained_weights` returned. Raises RuntimeError if they belong to another module."""
    missing, unexpected = module.load_state_dict(weights, strict=False)
    wrong_names = sorted({*missing} - _frozen_names(module)) + sorted(unexpected)
    if wrong_names:
        raise RuntimeError(f"weights of another model: {', '.join(wrong_names[:5])}")


def _frozen_names(module: nn.Module) -> set[str]:
    return {name for name, parameter in module.named_parameters() if not parameter.requires_grad}


def seed_all(seed: int, rank: int = 0) -> None:
    """Seeds Python, NumPy and PyTorch. Ranks get different random streams from one seed."""
    torch.manual_seed(_seed_libraries(seed, rank))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A context with the random states of `seed_all` on the CPU; its end restores the earlier states."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(_seed_libraries(seed))
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def _seed_libraries(seed: int, rank: int = 0) -> int:
    """Seeds Python and NumPy, and returns the seed for PyTorch."""
    library_seed = int(np.random.SeedSequence([seed, rank]).generate_state(1)[0])
    random.seed(library_seed)
    np.random.seed(library_seed)  # libraries use the global state
    return library_seed
