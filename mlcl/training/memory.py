"""Memory: a step that does not fit is repeated with half the micro-batch; a finished training's is freed.

The batch, over which the loss goes, never changes.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from mlcl.errors import UserError
from mlcl.training.checkpoint import rng_state, set_rng_state
from mlcl.training.grad_cache import OutOfMemory, buffers_of, set_buffers

KEY = "train.micro_batch_size"
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
T = TypeVar("T")


def fit(
    attempt: Callable[[int], T], size: int, least: int, model: nn.Module, world_size: int
) -> tuple[T, int]:
    """Returns `attempt(size)` and the size, which is halved, but not below `least`, until it fits in memory.

    Each attempt begins with the random state and the buffers of the first, and with no gradients. Raises
    UserError where `least` samples do not fit either; RuntimeError where one of several ranks ran out
    of memory while the others wait for it in a collective: then the step cannot be repeated.
    """
    rng, buffers = rng_state(), buffers_of(model)
    while True:
        model.zero_grad()
        try:
            return attempt(size), size
        except (OutOfMemory, torch.OutOfMemoryError) as error:
            if world_size > 1 and not isinstance(error, OutOfMemory):
                raise RuntimeError(
                    "out of memory in a pass that all workers share, where a step cannot be repeated; set "
                    f"{KEY} below {size}, or a smaller train.batch_size"
                ) from error
        # After the handler, since the traceback holds the step's tensors.
        torch.cuda.empty_cache()
        size = _halved(size, least)
        set_rng_state(rng)
        set_buffers(model, buffers)


def _halved(size: int, least: int) -> int:
    if size <= least:
        raise UserError(
            "out of memory with the smallest micro-batch",
            key=KEY,
            found=size,
            allowed="no less; a smaller train.batch_size or encoder, or a device with more memory",
        )
    return max(size // 2, least)


def least_samples(encoder: nn.Module) -> int:
    """The smallest micro-batch of an encoder, in samples: BatchNorm needs two."""
    return 2 if has_batch_norm(encoder) else 1


def has_batch_norm(encoder: nn.Module) -> bool:
    """Whether an encoder has BatchNorm, whose statistics go over the rows of a pass."""
    return any(isinstance(module, BATCH_NORMS) for module in encoder.modules())


def check_micro_batch(size: int | None, encoder: nn.Module) -> None:
    """Raises UserError for a micro-batch of fewer samples than the encoder can be trained with."""
    if size is not None and size < least_samples(encoder):
        raise UserError(
            "BatchNorm needs more than one sample at once",
            key=KEY,
            found=size,
            allowed=f"{least_samples(encoder)} or more",
        )


def give_back() -> None:
    """Returns freed memory to the system, where the C library can.

    Batches of texts have many different shapes, and freeing their tensors fragments glibc's heap: a process
    that trains one text model after another would grow by gigabytes.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
