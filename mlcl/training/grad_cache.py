"""Forward and backward of one batch: in one pass, or in micro-batches through cached embeddings.

Shapes: R rows of this process, N consecutive rows of one micro-batch, D embedding, O columns of the encoder's
output (D, or D + L).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from mlcl.training.batches import Batch
from mlcl.training.checkpoint import rng_state, set_rng_state
from mlcl.training.context import Context
from mlcl.training.objective import ContrastiveModel, Objective, ObjectiveValue

T = TypeVar("T")


class OutOfMemory(Exception):  # noqa: N818 (the step may be repeated)
    """A pass did not fit in some rank's memory; raised on all ranks, so that all repeat the step."""


@dataclass(frozen=True)
class Passes:
    """Adds a batch's gradient to `.grad` of the model's parameters, and gives the objective's value.

    `wrapped` is the model itself, or DDP around it. `share` is the largest number of samples that a process
    has in a batch.
    """

    model: ContrastiveModel
    wrapped: nn.Module
    context: Context
    precision: str
    views: int
    share: int

    def __call__(self, batch: Batch, size: int) -> ObjectiveValue:
        """In micro-batches of consecutive rows of about `size` samples; in one pass from `share` on.

        Every rank must pass the same `size`. Raises OutOfMemory on all ranks where one ran out of memory at a
        place where the step can be repeated, and torch.OutOfMemoryError on that rank at any other place.
        """
        # By the share, not by this batch: ranks with fewer rows must go through the same collectives.
        if size >= self.share:
            return self._whole(batch)
        return self._cached(batch, math.ceil(len(batch) / (size * self.views)))

    def _whole(self, batch: Batch) -> ObjectiveValue:
        value = self._objective(self._encode(self.wrapped, batch.inputs), batch)
        value.total.backward()  # type: ignore[no-untyped-call]
        return value

    def _cached(self, batch: Batch, parts: int) -> ObjectiveValue:
        """With z_c = f(x_c; theta) of micro-batch c and the objective L(z; phi) of all rows,

            dL/dtheta = sum_c (dz_c/dtheta)^T dL/dz_c.

        First z without a graph; then dL/dz and dL/dphi; then each z_c once more, with its graph and the
        random numbers of the first time, to carry dL/dz_c on to theta. Equal to one pass up to rounding.
        Source: Gao et al. 2021, Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup.
        """
        chunks = list(_split(batch.inputs, parts))
        z_RD, states = self._agreed(lambda: self._cache(chunks))
        phi = [p for p in self.model.objective.parameters() if p.requires_grad]
        value, gradient_RD, gradients = self._objective_gradient(z_RD, phi, batch)
        after = rng_state()
        *others, last = zip(chunks, states, gradient_RD.tensor_split(parts), strict=True)

        def accumulate() -> bool:
            for chunk, state, gradient_ND in others:
                set_rng_state(state)
                _backward([self._encode(self.model, chunk)], [gradient_ND])
            return True

        self._agreed(accumulate)
        # The last one alone goes through DDP, whose hooks then average all that has been added up: once a
        # step, at the same place on every rank, however many micro-batches each has. Here a rank can no
        # longer tell the others that memory ran out; but the last is never the largest.
        chunk, state, gradient_ND = last
        set_rng_state(state)
        _backward([self._encode(self.wrapped, chunk), *phi], [gradient_ND, *gradients])
        set_rng_state(after)
        return value

    def _cache(self, chunks: Sequence[Mapping[str, Tensor]]) -> tuple[Tensor, list[dict[str, Tensor]]]:
        """Embeddings (R, D) without a graph, and the random state before each micro-batch."""
        buffers = buffers_of(self.model.encoder)
        states, parts = [], []
        with torch.no_grad():
            for chunk in chunks:
                states.append(rng_state())
                # The next pass of a CUDA graph writes its output where this one's is.
                parts.append(self._encode(self.model, chunk).clone())
        # BatchNorm's running statistics move once a micro-batch: in the pass with a graph.
        set_buffers(self.model.encoder, buffers)
        return torch.cat(parts), states

    def _objective_gradient(
        self, z_RD: Tensor, phi: Sequence[Tensor], batch: Batch
    ) -> tuple[ObjectiveValue, Tensor, list[Tensor]]:
        """The value without its graph, dL/dz (R, D) and dL/dphi; nothing is added to `.grad`."""
        value = self._objective(z_RD.requires_grad_(), batch)
        gradient_RD, *gradients = torch.autograd.grad(value.total, [z_RD, *phi], materialize_grads=True)
        parts = {name: part.detach() for name, part in value.parts.items()}
        return ObjectiveValue(value.total.detach(), parts, z_RD.detach()), gradient_RD, gradients

    def _encode(self, module: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
        # A context for each pass: autocast keeps the weights that it has cast, and those of a pass without
        # a graph would cut the next pass off from its parameters.
        with self.context.autocast(self.precision):
            z_ND: Tensor = module(inputs)
        return z_ND

    def _objective(self, z_RD: Tensor, batch: Batch) -> ObjectiveValue:
        with self.context.autocast(self.precision):
            value: ObjectiveValue = self.model.objective(z_RD, batch.labels, batch.sample_ids)
        return value

    def _agreed(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns; raises OutOfMemory on every rank where memory ran out on any."""
        results: list[T] = []
        # Suppressed here and not handled later: the error's traceback holds the tensors of the pass.
        with contextlib.suppress(torch.OutOfMemoryError):
            results.append(work())
        if self.context.any(not results):
            raise OutOfMemory
        return results[0]


def _backward(tensors: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """The backward of those tensors that have a graph: the output of a frozen encoder has none."""
    pairs = [(t, g) for t, g in zip(tensors, gradients, strict=True) if t.requires_grad]
    if pairs:
        torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])


def _split(inputs: Mapping[str, Tensor], parts: int) -> Iterator[Mapping[str, Tensor]]:
    """Consecutive runs of rows, of lengths that differ by one at most, the longer ones first."""
    columns = [value.tensor_split(parts) for value in inputs.values()]
    for rows in zip(*columns, strict=True):
        yield dict(zip(inputs, rows, strict=True))


def buffers_of(module: nn.Module) -> list[Tensor]:
    """Copies of a module's buffers, such as BatchNorm's running statistics."""
    return [buffer.clone() for buffer in module.buffers()]


def set_buffers(module: nn.Module, buffers: Sequence[Tensor]) -> None:
    """Restores what `buffers_of` gave."""
    for buffer, saved in zip(module.buffers(), buffers, strict=True):
        buffer.copy_(saved)


def gradient_norms(
    objective: Objective, output_RO: Tensor, batch: Batch, context: Context, precision: str
) -> dict[str, float]:
    """|d(w_k L_k) / dZ| of each part k, Z the encoder's output for the whole batch; the same on every rank.

    By name: `heads/NAME/gradient_norm`, `classifier/gradient_norm`. It takes one more forward and backward of
    the objective, none of the encoder, and changes no `.grad`. Every rank must call it.
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
