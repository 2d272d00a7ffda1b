"""A contrastive step in micro-batches: the loss compares all rows, memory holds the graph of one micro-batch.

With the embeddings z_c = f(x_c; theta) of micro-batch c and the loss L(z) of all rows,

    dL/dtheta = sum_c (dz_c/dtheta)^T dL/dz_c.

First z is computed without a graph, then dL/dz. Then each z_c is computed again, with its graph and the same
random numbers, and dL/dz_c is propagated back to theta. The result equals that of one pass, up to rounding.
Source: Gao et al. 2021, Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup.

Shapes: R rows of the batch, N rows of a micro-batch, D embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

Chunk = TypeVar("Chunk")


def cached_backward(
    chunks: Sequence[Chunk],
    encode: Callable[[Chunk], Tensor],
    loss: Callable[[Tensor], Tensor],
    *,
    module: nn.Module | None = None,
    last: Callable[[Chunk], Tensor] | None = None,
) -> Tensor:
    """Adds the gradient of a loss over all micro-batches to `.grad`, and returns the loss without a graph.

    Args:
        chunks: The micro-batches, in the order of the rows.
        encode: Returns the embeddings (N, D) of a micro-batch.
        loss: Returns the loss, a scalar, of the embeddings (R, D) of all rows. Parameters of the loss get
            gradients, too, which are not averaged over processes.
        module: The encoder. Its buffers, such as BatchNorm's running statistics, then change once for each
            micro-batch, not twice.
        last: Encodes the last micro-batch; default: `encode`. With DistributedDataParallel `encode` is the
            inner model and `last` the wrapper: gradients are then averaged once, not once a micro-batch.

    Raises:
        ValueError: There is no micro-batch.

    Example:
        >>> encoder, x, classes = torch.nn.Linear(8, 4), torch.randn(6, 8), torch.arange(6) % 2
        >>> loss = build_loss("supcon", temperature=0.1, normalize=True)
        >>> value = cached_backward(x.split(2), encoder, lambda z: loss(z, classes))
        >>> encoder.weight.grad.shape
        torch.Size([4, 8])
    """
    cache = GradCache(chunks, encode, module)
    z_RD = cache.forward().requires_grad_()
    value = loss(z_RD)
    value.backward()  # type: ignore[no-untyped-call]
    gradient_RD = torch.zeros_like(z_RD) if z_RD.grad is None else z_RD.grad
    cache.backward_first(gradient_RD)
    cache.backward_last(last or encode)
    return value.detach()


class GradCache(Generic[Chunk]):
    """The parts of `cached_backward`: embeddings without a graph, then the backward of each micro-batch.

    Args:
        chunks: The micro-batches.
        encode: Returns the embeddings (N, D) of a micro-batch.
        module: The module whose buffers are restored after the pass without a graph; None for none.

    Raises:
        ValueError: There is no micro-batch.

    Example:
        >>> encoder, classes = torch.nn.Linear(8, 4), torch.arange(6) % 2
        >>> loss = build_loss("supcon", normalize=True)
        >>> cache = GradCache(torch.randn(6, 8).split(2), encoder)
        >>> z = cache.forward().requires_grad_()
        >>> gradient, _ = loss_gradients(loss(z, classes), z, [])
        >>> cache.backward_first(gradient)
        >>> cache.backward_last(encoder)
        >>> encoder.weight.grad.shape
        torch.Size([4, 8])
    """

    def __init__(
        self, chunks: Sequence[Chunk], encode: Callable[[Chunk], Tensor], module: nn.Module | None = None
    ) -> None:
        if not len(chunks):
            raise ValueError("no micro-batch")
        self._chunks, self._encode, self._module = chunks, encode, module
        self._rng_states: list[dict[str, Tensor]] = []
        self._sizes: list[int] = []
        self._last_ND: Tensor
        self._final_rng_state: dict[str, Tensor]

    def forward(self) -> Tensor:
        """Returns the embeddings (R, D) of all rows, without a graph."""
        buffers = [] if self._module is None else buffers_of(self._module)
        parts = []
        with torch.no_grad():
            for chunk in self._chunks:
                self._rng_states.append(rng_state())
                # A CUDA graph writes every output to the same memory, so that the next pass overwrites this.
                parts.append(self._encode(chunk).clone())
        # Older versions of PyTorch would use weights that were cast without a graph in the next pass, too.
        torch.clear_autocast_cache()
        if self._module is not None:
            set_buffers(self._module, buffers)
        self._sizes = [len(part) for part in parts]
        return torch.cat(parts)

    def backward_first(self, gradient_RD: Tensor) -> None:
        """Adds the gradients of all micro-batches but the last, given dL/dz of all rows."""
        self._final_rng_state = rng_state()
        *gradients, self._last_ND = torch.split(gradient_RD, self._sizes)
        for chunk, state, gradient_ND in zip(self._chunks, self._rng_states, gradients, strict=False):
            set_rng_state(state)
            backward([(self._encode(chunk), gradient_ND)])

    def backward_last(
        self, encode: Callable[[Chunk], Tensor], other_pairs: Iterable[tuple[Tensor, Tensor]] = ()
    ) -> None:
        """Adds the gradient of the last micro-batch, after `backward_first`, and restores the random state.

        Args:
            encode: Encodes the last micro-batch; with DistributedDataParallel the wrapper of the model.
            other_pairs: Further pairs of a tensor and its gradient, from which the same backward pass starts.
        """
        set_rng_state(self._rng_states[-1])
        backward([(encode(self._chunks[-1]), self._last_ND), *other_pairs])
        set_rng_state(self._final_rng_state)


def loss_gradients(
    value: Tensor, z_RD: Tensor, parameters: Iterable[nn.Parameter]
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Returns dL/dz of all rows, and pairs of a parameter of the loss itself and its gradient.

    There is a pair for each of `parameters` on which the loss depends other than through z. The pairs are the
    `other_pairs` of `GradCache.backward_last`, in whose backward pass DistributedDataParallel averages
    gradients.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    gradient_RD, *gradients = torch.autograd.grad(value, [z_RD, *trained], allow_unused=True)
    pairs = [
        (p.view_as(p), gradient)
        for p, gradient in zip(trained, gradients, strict=True)
        if gradient is not None
    ]
    return torch.zeros_like(z_RD) if gradient_RD is None else gradient_RD, pairs


def backward(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Runs one backward pass from pairs of a tensor and its gradient, without tensors that have no graph."""
    graph_pairs = [(tensor, gradient) for tensor, gradient in pairs if tensor.requires_grad]
    if graph_pairs:
        torch.autograd.backward(
            [tensor for tensor, _ in graph_pairs], [gradient for _, gradient in graph_pairs]
        )


def rng_state() -> dict[str, Tensor]:
    """Returns PyTorch's random states on the CPU and on the current GPU."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_rng_state(state: dict[str, Tensor]) -> None:
    """Restores the random states that `rng_state` returned."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def buffers_of(module: nn.Module) -> list[Tensor]:
    """Returns copies of a module's buffers, such as BatchNorm's running statistics."""
    return [buffer.clone() for buffer in module.buffers()]


def set_buffers(module: nn.Module, buffers: Sequence[Tensor]) -> None:
    """Restores a module's buffers from the copies that `buffers_of` returned."""
    for buffer, copy in zip(module.buffers(), buffers, strict=True):
        buffer.copy_(copy)
