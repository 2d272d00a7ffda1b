"""What every encoder has to do in training, whatever it is made of."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tiny_models import token_batch
from torch import Tensor, nn

from mlcl.labels import LabelRows
from mlcl.losses import build_loss
from mlcl.training.batches import Batch
from mlcl.training.checkpoint import seed_all
from mlcl.training.context import Context
from mlcl.training.grad_cache import Passes
from mlcl.training.objective import ContrastiveModel, ObjectiveValue

LABELS = 5
LENGTHS = [9, 4, 6, 2, 7, 3]


class Both(nn.Module):
    """A contrastive loss of the embedding, and the labels' cross-entropy where the encoder gives logits."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.loss = build_loss("simdis", temperature=0.3, normalize=True)

    def forward(self, z_RD: Tensor, labels: dict[str, LabelRows], sample_ids_R: Tensor) -> ObjectiveValue:
        total = self.loss(z_RD[:, : self.dim], labels["tags"], sample_ids_R)
        if z_RD.shape[1] > self.dim:
            dense = labels["tags"].dense(z_RD.dtype)
            total = total + F.binary_cross_entropy_with_logits(z_RD[:, self.dim :], dense)
        return ObjectiveValue(total, {"total": total}, z_RD)


def text_batch() -> Batch:
    """Six texts in two views."""
    ids, mask = token_batch(LENGTHS * 2, max(LENGTHS))
    inputs = {"input_ids": ids, "attention_mask": mask}
    rows = LabelRows.from_lists([[0], [0, 1], [2], [1, 2], [3, 4], [0, 3]] * 2, LABELS)
    return Batch(inputs, {"tags": rows}, torch.arange(6).repeat(2))


def passes(encoder: nn.Module) -> Passes:
    model = ContrastiveModel(encoder, Both(int(encoder.dim)))  # type: ignore[arg-type]
    context = Context(torch.device("cpu"))
    return Passes(model, model, context, "float32", 2, len(LENGTHS))


def gradients(encoder: nn.Module, size: int) -> tuple[Tensor, dict[str, Tensor]]:
    """The objective, and the gradient of each trained parameter, in micro-batches of `size` samples."""
    encoder.zero_grad()
    seed_all(3)
    value = passes(encoder)(text_batch(), size)
    trained = {name: p.grad for name, p in encoder.named_parameters() if p.requires_grad}
    return value.total, {name: gradient.clone() for name, gradient in trained.items()}


def outputs(encoder: nn.Module, size: int) -> tuple[Tensor, Tensor]:
    """What the encoder gave without a graph, and then with one, in micro-batches of `size` samples."""
    seen: dict[bool, list[Tensor]] = {False: [], True: []}

    def look(module: nn.Module, inputs: object, output: Tensor) -> None:
        seen[torch.is_grad_enabled()].append(output.detach())

    handle = encoder.register_forward_hook(look)
    gradients(encoder, size)
    handle.remove()
    return torch.cat(seen[False]), torch.cat(seen[True])


def losses(encoder: nn.Module, steps: int, lr: float) -> list[float]:
    """The objective on one batch over a few steps of Adam."""
    step, batch = passes(encoder), text_batch()
    optimizer = torch.optim.Adam([p for p in encoder.parameters() if p.requires_grad], lr)
    values = []
    for _ in range(steps):
        optimizer.zero_grad()
        values.append(float(step(batch, len(LENGTHS)).total.detach()))
        optimizer.step()
    return values
