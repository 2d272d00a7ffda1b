"""Adapter of Lightning: a step through the gradient cache for a LightningModule, and a callback for stats.

A loss with `gather=True` that is a submodule of the LightningModule needs no adapter: under DDP Lightning
runs `training_step` in DistributedDataParallel, whose mean over processes is the gradient of one process.

Shapes: R rows of all micro-batches, N rows of one, D embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lightning
from torch import Tensor

from mlcl.grad_cache import GradCache, loss_gradients
from mlcl.losses import ContrastiveLoss


class GradCacheMixin:
    """A mixin of a LightningModule whose loss compares the rows of several batches, as in one large batch.

    The module sets `self.automatic_optimization = False`. Under DDP, gradients are averaged once a step,
    including those of the loss's own parameters; processes may hold different numbers of rows, or none. Mixed
    precision scales gradients as usual.

    Example:
        >>> class Model(GradCacheMixin, lightning.LightningModule):
        ...     def training_step(self, batch, index):
        ...         if batches := self.collect(batch, every=4):
        ...             inputs, labels = [x for x, _ in batches], torch.cat([y for _, y in batches])
        ...             self.optimizers().zero_grad()
        ...             value = self.cached_backward(inputs, self.encoder, lambda z: self.loss(z, labels))
        ...             self.optimizers().step()
        ...             self.log("loss", value, sync_dist=True)
    """

    _collected_batches: Sequence[Any] = ()

    def collect(self: Any, batch: Any, every: int) -> list[Any]:
        """Keeps a batch. Returns [], or all kept batches if there are `every` or the epoch ends.

        Returned batches are no longer kept. A training that continues from a checkpoint does not have the
        batches that were kept before it.

        Raises ValueError if `every` is below 1.
        """
        if every < 1:
            raise ValueError(f"every; found: {every}; allowed: 1 or more")
        if self.trainer.fit_loop.epoch_loop.batch_idx == 0:
            self._collected_batches = []
        self._collected_batches = [*self._collected_batches, batch]
        if len(self._collected_batches) < every and not self.trainer.is_last_batch:
            return []
        batches: list[Any] = self._collected_batches
        self._collected_batches = []
        return batches

    def cached_backward(
        self: Any, chunks: Sequence[Any], encode: Callable[[Any], Tensor], loss: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Adds the gradient of a loss over all micro-batches to `.grad`, and returns the loss.

        Args:
            chunks: The micro-batches, in the order of the rows.
            encode: Returns the embeddings (N, D) of a micro-batch, by submodules of this module.
            loss: Returns the loss, a scalar, of the embeddings (R, D).

        Raises:
            ValueError: If there is no micro-batch, or the module is optimised automatically.
        """
        if self.automatic_optimization:
            raise ValueError("cached_backward; found: automatic_optimization True; allowed: False")
        cache, strategy = GradCache(chunks, encode, self), self.trainer.strategy
        z_RD = cache.forward().requires_grad_()
        value = loss(z_RD)
        scaled = strategy.precision_plugin.pre_backward(value, self)
        gradient_RD, loss_pairs = loss_gradients(scaled, z_RD, self.parameters())
        cache.backward_first(gradient_RD)

        def encode_last(chunk: Any) -> Tensor:
            z_ND = encode(chunk)
            # After this call DDP averages the gradients of the next backward.
            strategy.pre_backward([z_ND, *(parameter for parameter, _ in loss_pairs)])
            return z_ND

        cache.backward_last(encode_last, loss_pairs)
        strategy.precision_plugin.post_backward(value, self)
        strategy.post_backward(value)
        return value.detach()


class LossStatsLogger(lightning.Callback):
    """A callback that logs the `LossStats` of each loss of a module for this process's last batch.

    Args:
        every: The number of batches from one logging to the next.

    Raises:
        ValueError: If `every` is below 1; when training starts, if no submodule is a loss of mlcl.

    Example:
        >>> trainer = lightning.Trainer(callbacks=[LossStatsLogger(every=50)])
    """

    def __init__(self, every: int = 50) -> None:
        if every < 1:
            raise ValueError(f"every; found: {every}; allowed: 1 or more")
        self.every = every

    def on_fit_start(self, _trainer: Any, pl_module: Any) -> None:
        """Raises ValueError if no submodule is a loss of mlcl."""
        if not any(isinstance(module, ContrastiveLoss) for module in pl_module.modules()):
            raise ValueError("LossStatsLogger needs a loss of mlcl as a submodule of the module; found: none")

    def on_train_batch_end(
        self, _trainer: Any, pl_module: Any, _outputs: Any, _batch: Any, batch_idx: int
    ) -> None:
        """Logs each loss's diagnostics as NAME/DIAGNOSTIC, by the submodule's name."""
        if (batch_idx + 1) % self.every:
            return
        for name, module in pl_module.named_modules():
            if isinstance(module, ContrastiveLoss) and module.stats is not None:
                pl_module.log_dict({f"{name}/{key}": value for key, value in module.stats.as_dict().items()})
