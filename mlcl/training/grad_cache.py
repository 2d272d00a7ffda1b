"""Runs forward and backward of a batch, in one pass or in micro-batches through cached embeddings.

If memory runs out, the step is repeated with half the micro-batch; the loss always covers the whole batch.

Shapes: R rows of this process, N consecutive rows of one micro-batch, D embedding, O columns of the encoder's
output (D, or D + L).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mlcl.config.training_sections import TrainConfig
from mlcl.errors import UserError
from mlcl.grad_cache import GradCache, buffers_of, rng_state, set_buffers, set_rng_state
from mlcl.training.batches import Batch
from mlcl.training.context import Context
from mlcl.training.objective import ContrastiveModel, Objective, ObjectiveValue

KEY = "train.micro_batch_size"
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
T = TypeVar("T")


class OutOfMemory(Exception):  # noqa: N818 (the step may be repeated)
    """Raised on all ranks if memory ran out on any of them, so that all ranks repeat the step."""


@dataclass(frozen=True)
class Passes:
    """Adds a batch's gradient to `.grad` of the model's parameters, and returns the objective's value.

    `wrapped` is the model itself, or DDP around it. `share` is the largest number of samples that one process
    has in a batch.
    """

    model: ContrastiveModel
    wrapped: nn.Module
    context: Context
    precision: str
    views: int
    share: int

    @classmethod
    def of(
        cls, model: ContrastiveModel, context: Context, train: TrainConfig, views: int, share: int
    ) -> Passes:
        """Compiles the encoder if the job asks for it; with several ranks, wraps the model in DDP."""
        if train.compile:
            graphs = train.compile == "graphs"
            model.encoder.compile(mode="reduce-overhead" if graphs else None)
        wrapped: nn.Module = model
        if context.world_size > 1:
            devices = [context.device] if context.device.type == "cuda" else None
            wrapped = DistributedDataParallel(model, device_ids=devices)
        return cls(model, wrapped, context, train.precision, views, share)

    def __call__(self, batch: Batch, size: int) -> ObjectiveValue:
        """Adds a batch's gradient in micro-batches of about `size` samples; in one pass if `size` >= `share`.

        Every rank must pass the same `size`. Raises OutOfMemory on all ranks if one ran out of memory and the
        step can be repeated, else torch.OutOfMemoryError on this rank.
        """
        # The share decides, not this batch: ranks with fewer rows must take part in the same collectives.
        if size < self.share:
            samples, minimum = len(batch) // self.views, least_samples(self.model.encoder)
            # Parts have equally many samples up to one, and none may have fewer than BatchNorm needs.
            return self._backward_cached(batch, min(math.ceil(samples / size), max(1, samples // minimum)))
        value = self._compute_objective(self._encode(self.wrapped, batch.inputs), batch)
        value.total.backward()  # type: ignore[no-untyped-call]
        return value

    def _backward_cached(self, batch: Batch, parts: int) -> ObjectiveValue:
        """Adds the batch's gradient in micro-batches, see `mlcl.grad_cache`."""
        columns = [value.tensor_split(parts) for value in batch.inputs.values()]
        chunks = [dict(zip(batch.inputs, rows, strict=True)) for rows in zip(*columns, strict=True)]
        cache = GradCache(chunks, partial(self._encode, self.model), self.model.encoder)
        z_RD = self._run_on_all_ranks(cache.forward)
        phi = [p for p in self.model.objective.parameters() if p.requires_grad]
        value = self._compute_objective(z_RD.requires_grad_(), batch)
        gradient_RD, *gradients = torch.autograd.grad(value.total, [z_RD, *phi], materialize_grads=True)
        value = value.detach()
        self._run_on_all_ranks(lambda: cache.backward_first(gradient_RD))
        # Only the last micro-batch goes through DDP, whose hooks then average the gradients that have been
        # added up: once a step on every rank, however many micro-batches each has. In this pass a rank cannot
        # tell the others that memory ran out; but no micro-batch is smaller than the last.
        cache.backward_last(partial(self._encode, self.wrapped), zip(phi, gradients, strict=True))
        return value

    def _encode(self, module: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
        # A context for each pass: autocast keeps the weights that it has cast, and those of a pass without
        # a graph would cut the next pass off from its parameters.
        with self.context.autocast(self.precision):
            z_ND: Tensor = module(inputs)
        return z_ND

    def _compute_objective(self, z_RD: Tensor, batch: Batch) -> ObjectiveValue:
        with self.context.autocast(self.precision):
            value: ObjectiveValue = self.model.objective(z_RD, batch.labels, batch.sample_ids)
        return value

    def _run_on_all_ranks(self, work: Callable[[], T]) -> T:
        """Returns the result of `work`. Raises OutOfMemory on every rank if memory ran out on any."""
        results: list[T] = []
        # Suppressed here and not handled later: the error's traceback holds the tensors of the pass.
        with contextlib.suppress(torch.OutOfMemoryError):
            results.append(work())
        if self.context.any(not results):
            raise OutOfMemory
        return results[0]


def gradient_norms(
    objective: Objective, output_RO: Tensor, batch: Batch, context: Context, precision: str
) -> dict[str, float]:
    """Returns |d(w_k L_k) / dZ| of each part k, where Z is the encoder's output for the whole batch.

    The names are `heads/NAME/gradient_norm` and `classifier/gradient_norm`; values are equal on all ranks.
    Runs forward and backward of the objective once more, without the encoder, and leaves `.grad` unchanged.
    Every rank must call this.
    """
    output_RO = output_RO.detach().requires_grad_()
    squares: dict[str, Tensor] = {}
    with context.autocast(precision):
        for name, part in objective.weighted_parts(output_RO, batch.labels, batch.sample_ids):
            (gradient_RO,) = torch.autograd.grad(part, output_RO, materialize_grads=True)
            squares[f"{name}/gradient_norm"] = gradient_RO.double().square().sum()
    total_K = context.sum(torch.stack(list(squares.values())))
    # A rank's value is its share times the number of ranks, and so is its gradient.
    return {
        name: total**0.5 / context.world_size for name, total in zip(squares, total_K.tolist(), strict=True)
    }


def fit(
    attempt: Callable[[int], T], size: int, min_size: int, model: nn.Module, world_size: int
) -> tuple[T, int]:
    """Calls `attempt(size)`, and halves `size`, but not below `min_size`, until memory is sufficient.

    Each attempt begins with the random state and the buffers of the first one, and without gradients. Returns
    the result and the size of the successful attempt. Raises UserError if memory runs out with `min_size`
    samples, too, and RuntimeError if one of several ranks ran out of memory while the others wait for it in a
    collective, so that the step cannot be repeated.
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
        # Outside of the handler, since the traceback holds the step's tensors.
        torch.cuda.empty_cache()
        if size <= min_size:
            allowed = "no less; a smaller train.batch_size or encoder, or a device with more memory"
            raise UserError(
                "out of memory with the smallest micro-batch", key=KEY, found=size, allowed=allowed
            )
        size = max(size // 2, min_size)
        set_rng_state(rng)
        set_buffers(model, buffers)


def least_samples(encoder: nn.Module) -> int:
    """Returns the smallest micro-batch of an encoder in samples: 2 with BatchNorm, else 1."""
    return 2 if has_batch_norm(encoder) else 1


def has_batch_norm(encoder: nn.Module) -> bool:
    """Whether an encoder has BatchNorm layers, whose statistics depend on the rows of each pass."""
    return any(isinstance(module, BATCH_NORMS) for module in encoder.modules())


def check_micro_batch(size: int | None, encoder: nn.Module) -> None:
    """Raises UserError for a micro-batch with fewer samples than the encoder needs."""
    minimum = least_samples(encoder)
    if size is not None and size < minimum:
        problem = "BatchNorm needs more than one sample at once"
        raise UserError(problem, key=KEY, found=size, allowed=f"{minimum} or more")


def give_back() -> None:
    """Returns freed memory to the operating system, if the C library can.

    Batches of texts have many shapes, and freeing their tensors fragments glibc's heap: a process that trains
    one text model after another would grow by gigabytes.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
