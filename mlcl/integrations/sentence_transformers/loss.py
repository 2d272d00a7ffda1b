"""The loss of SentenceTransformerTrainer.

Shapes: B texts, V columns of texts, R = V B rows, N rows of a mini-batch, D embedding.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mlcl.grad_cache import GradCache, loss_gradients
from mlcl.integrations.checks import check_loss
from mlcl.integrations.empty_batches import encode_rows
from mlcl.losses import ContrastiveLoss
from mlcl.losses.batch import world


class LabelLoss(nn.Module):
    """A loss for SentenceTransformerTrainer: a loss of mlcl on the embeddings of the model.

    Each column of texts is a view: the rows of all columns are compared, and the columns of a text share its
    labels. With `gather=True` in the loss, gradients of several processes equal those of one. Gradients of
    the loss's own parameters, which the trainer optimises but DDP does not know, are averaged here.

    A checkpoint of the trainer has the optimiser's state of a learned temperature and of prototypes, but not
    their values: a training that continues from it needs `loss.load_state_dict` before `train`, with the
    `loss.state_dict()` that a callback's `on_save` has stored.

    Args:
        model: The SentenceTransformer.
        loss: A loss of `mlcl.losses.build_loss`, with any reduction but `none`.
        mini_batch_size: The rows that are embedded at once. Memory then holds the graph of so many rows, and
            the loss compares all rows of the batch, see `mlcl.grad_cache`; None embeds all at once. For a
            model that begins with StaticEmbedding only None is allowed.

    Raises:
        ValueError: For another loss or size, and inputs that cannot be cut into rows.

    Example:
        >>> from mlcl.losses import build_loss
        >>> loss = LabelLoss(model, build_loss("simdis", normalize=True, gather=True), mini_batch_size=32)
    """

    def __init__(self, model: nn.Module, loss: ContrastiveLoss, mini_batch_size: int | None = None) -> None:
        super().__init__()
        check_loss(loss, ("mean", "mean_valid", "sum"))
        if mini_batch_size is not None and mini_batch_size < 1:
            raise ValueError(f"mini_batch_size; found: {mini_batch_size}; allowed: 1 or more, None")
        self.model, self.loss, self.mini_batch_size = model, loss, mini_batch_size
        self.uses_gradient_cache = mini_batch_size is not None  # read by sentence-transformers' wrappers
        for parameter in loss.parameters():
            hook = partial(_average_gradient, loss.group)
            parameter.register_hook(hook)  # type: ignore[no-untyped-call]

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Returns the loss of the texts' features, a dictionary for each column, and their labels."""
        columns = list(sentence_features)
        if self.mini_batch_size is None:
            z_RD = torch.cat([_embed(self.model, column) for column in columns])
            return self._loss_value(z_RD, labels, len(columns))
        chunks = [chunk for column in columns for chunk in _cut_features(column, self.mini_batch_size)]
        wrapper = getattr(self.model, "_orig_mod", self.model)  # set by torch.compile
        module = wrapper.module if isinstance(wrapper, DistributedDataParallel) else self.model
        cache = GradCache(chunks, partial(_embed, module), module)
        z_RD = cache.forward()
        if not torch.is_grad_enabled():
            return self._loss_value(z_RD, labels, len(columns))
        value = self._loss_value(z_RD.requires_grad_(), labels, len(columns))
        gradient_RD, loss_pairs = loss_gradients(value, z_RD, self.loss.parameters())
        result = value.detach().requires_grad_()

        def backward(scale: Tensor) -> None:
            with torch.enable_grad():
                cache.backward_first(gradient_RD * scale)
                cache.backward_last(partial(_embed, self.model), [(p, g * scale) for p, g in loss_pairs])

        result.register_hook(backward)  # type: ignore[no-untyped-call]
        return result

    def _loss_value(self, z_RD: Tensor, labels: Tensor | None, views: int) -> Tensor:
        samples_R = None
        if views > 1:
            first_id = (dist.get_rank() if world(None) > 1 else 0) << 32  # processes have different ids
            samples_R = first_id + torch.arange(len(z_RD) // views, device=z_RD.device).repeat(views)
            labels = None if labels is None else torch.cat([labels] * views)
        value: Tensor = self.loss(z_RD, labels, samples_R)
        return value

    def get_config_dict(self) -> dict[str, Any]:
        """Returns the settings for the model card."""
        return {"loss": self.loss.extra_repr(), "mini_batch_size": self.mini_batch_size}


def _embed(model: nn.Module, features: dict[str, Any]) -> Tensor:
    return encode_rows(lambda inputs: model(inputs)["sentence_embedding"], features)


def _cut_features(features: dict[str, Any], size: int) -> list[dict[str, Any]]:
    """Cuts the features of a column into mini-batches; a column without texts is one mini-batch.

    Raises ValueError for features that do not have one row for each text.
    """
    tensors = {name: v for name, v in features.items() if isinstance(v, Tensor) and name != "prompt_length"}
    counts = {len(value) if value.ndim else 0 for value in tensors.values()}
    if len(counts) != 1 or "offsets" in features:
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in tensors.items())
        raise ValueError(f"mini_batch_size needs inputs of one row a text; found: {shapes}; allowed: None")
    starts = range(0, max(counts.pop(), 1), size)
    return [
        {**features, **{name: v[start : start + size] for name, v in tensors.items()}} for start in starts
    ]


def _average_gradient(group: Any, gradient: Tensor) -> Tensor:
    if (size := world(group)) == 1:
        return gradient
    total = gradient.clone()
    dist.all_reduce(total, group=group)
    return total / size
