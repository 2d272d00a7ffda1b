"""The objective: a weighted sum of the losses of contrastive heads and of a classifier, on one embedding.

Shapes: R rows (samples x views), D embedding, O the encoder's output (D, or D + L), C classes, L labels, A
aspects.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mlcl.losses import ContrastiveLoss, gather_rows, joint_loss, sharing_key
from mlcl.losses.batch import LossRows
from mlcl.losses.queue import Queue
from mlcl.training.classifier import Classifier, Labels

CLASSIFIER = "classifier"
"""The key of the classifier's targets among a batch's labels; no head may have this name."""


class Head(nn.Module):
    """A projection head, its loss and its weight alpha in the objective.

    With `reads_logits` it projects the classifier's logits in place of the embedding.
    """

    def __init__(
        self, projection: nn.Module, loss: ContrastiveLoss, weight: float, *, reads_logits: bool = False
    ) -> None:
        super().__init__()
        self.projection, self.loss = projection, loss
        self.weight, self.reads_logits = weight, reads_logits

    def forward(self, input_RD: Tensor, labels: Labels | None, sample_ids_R: Tensor) -> Tensor:
        """Returns the unweighted loss, a scalar in at least float32."""
        value: Tensor = self.loss(self.projection(input_RD), labels, sample_ids_R)
        return value

    def diagnostics(self) -> dict[str, float]:
        """Computes statistics of the last batch: positives, negatives and geometry, see `LossStats`."""
        stats = self.loss.stats
        return {} if stats is None else stats.as_dict()

    @property
    def sharing(self) -> Hashable | None:
        """The key that heads which share one softmax have in common; None for a head that cannot share."""
        key = sharing_key(self.loss) if isinstance(self.projection, nn.Identity) else None
        return None if key is None else (key, self.reads_logits)


@dataclass(frozen=True)
class ObjectiveValue:
    """The value of the objective for a batch.

    `total` is the weighted sum, `parts` holds each part's loss before its weight, keyed by name in the log,
    and `output` is the encoder's output (R, O).
    """

    total: Tensor
    parts: Mapping[str, Tensor]
    output: Tensor

    def detach(self) -> ObjectiveValue:
        """Returns the value without its graph."""
        parts = {name: part.detach() for name, part in self.parts.items()}
        return ObjectiveValue(self.total.detach(), parts, self.output.detach())


class Objective(nn.Module):
    """L = sum_h alpha_h L_h + w L_classifier, the weighted sum of the losses of heads h and classifier.

    Parts of weight 0 are not built, since their parameters would have no gradient. `label_logits` is the
    number of logits that follow the embedding in the encoder's output. Source: MLCL Eq. 2 and 3 (w = 1 - sum
    alpha); kNN-MLTC section 3.3 is one `knn` head of weight gamma and w = 1.
    """

    def __init__(
        self, heads: Mapping[str, Head], classifier: Classifier | None, label_logits: int = 0
    ) -> None:
        super().__init__()
        # With a suffix: a head may be called `type` or `keys`, a module may not.
        self.heads = nn.ModuleDict({f"{name}_head": head for name, head in heads.items()})
        self.classifier = classifier
        self.label_logits = label_logits

    def embedding(self, output_RO: Tensor) -> Tensor:
        """Returns the embedding (R, D), the encoder's output without the label logits that may follow it."""
        return output_RO[:, : output_RO.shape[1] - self.label_logits]

    def forward(
        self, output_RO: Tensor, labels: Mapping[str, Labels], sample_ids_R: Tensor
    ) -> ObjectiveValue:
        """Computes all parts and their weighted sum.

        `labels` are keyed by the name of the head; the classifier's targets have the key `CLASSIFIER`.
        """
        parts: dict[str, Tensor] = {}
        total = output_RO.new_zeros((), dtype=torch.float32)
        sharing: dict[Hashable, dict[str, Head]] = {}  # a head that shares no softmax is alone
        for name, head in self.named_heads():
            sharing.setdefault(head.sharing or name, {})[name] = head
        groups = list(sharing.values())
        first_heads = [next(iter(heads.values())) for heads in groups]
        projected = [head.projection(self._projection_input(head, output_RO)) for head in first_heads]
        losses = [[head.loss for head in heads.values()] for heads in groups]
        targets = [[labels.get(name) for name in heads] for heads in groups]
        rows = gather_rows(losses, projected, targets, sample_ids_R)
        for heads, z_RD, loss_rows in zip(groups, projected, rows, strict=True):
            value, values = self._sum_heads(heads, z_RD, labels, sample_ids_R, loss_rows)
            parts |= {f"heads/{name}/loss": part for name, part in zip(heads, values, strict=True)}
            total = total + value
        if self.classifier is not None:
            value = self.classifier(output_RO, labels[CLASSIFIER])
            parts["classifier/loss"] = value
            total = total + self.classifier.weight * value
        return ObjectiveValue(total, parts, output_RO)

    def weighted_parts(
        self, output_RO: Tensor, labels: Mapping[str, Labels], sample_ids_R: Tensor
    ) -> Iterator[tuple[str, Tensor]]:
        """Computes the weighted losses one by one, and yields each with the name under which it is logged."""
        for name, head in self.named_heads():
            value = head(self._projection_input(head, output_RO), labels.get(name), sample_ids_R)
            yield f"heads/{name}", head.weight * value
        if self.classifier is not None:
            yield "classifier", self.classifier.weight * self.classifier(output_RO, labels[CLASSIFIER])

    def _projection_input(self, head: Head, output_RO: Tensor) -> Tensor:
        """Returns what a head projects: the embedding (R, D), or all logits of a row (R, C or L or A * C)."""
        if not head.reads_logits:
            return self.embedding(output_RO)
        assert self.classifier is not None
        return self.classifier.logits(output_RO).flatten(1)

    def named_heads(self) -> Iterator[tuple[str, Head]]:
        """Yields each head with its name in the job."""
        for name, head in self.heads.items():
            assert isinstance(head, Head)
            yield name.removesuffix("_head"), head

    def set_progress(self, fraction: float) -> None:
        """Sets scheduled temperatures to their value at a fraction of the training, from 0 to 1."""
        for _, head in self.named_heads():
            head.loss.temperature.set_progress(fraction)

    def push_queues(self) -> None:
        """Adds the last batch to the heads' queues, once after each step, which may compute it repeatedly."""
        for _, queue in self._named_queues():
            queue.push()

    def queue_states(self) -> dict[str, dict[str, Any]]:
        """Returns the rows of each head's queue, for a checkpoint."""
        return {name: queue.state() for name, queue in self._named_queues()}

    def load_queues(self, states: Mapping[str, dict[str, Any]]) -> None:
        """Fills each head's queue with what `queue_states` returned."""
        for name, queue in self._named_queues():
            queue.load(states.get(name, {}))

    def _named_queues(self) -> Iterator[tuple[str, Queue]]:
        for name, head in self.named_heads():
            if head.loss.queue is not None:
                yield name, head.loss.queue

    def _sum_heads(
        self,
        heads: Mapping[str, Head],
        z_RD: Tensor,
        labels: Mapping[str, Labels],
        sample_ids_R: Tensor,
        rows: list[LossRows] | None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the weighted sum of heads on z, and each head's loss; `rows` come from `gather_rows`."""
        if len(heads) == 1:
            ((name, head),) = heads.items()
            value = head.loss(z_RD, labels.get(name), sample_ids_R, rows=rows[0] if rows else None)
            return head.weight * value, [value]
        losses, weights = zip(*((head.loss, head.weight) for head in heads.values()), strict=True)
        head_labels = [labels.get(name) for name in heads]
        value, values = joint_loss(losses, weights, z_RD, head_labels, sample_ids_R, rows=rows)
        return value, values

    def temperatures(self) -> dict[str, Tensor]:
        """Returns every head's current temperature, on its device."""
        heads = self.named_heads()
        return {f"heads/{name}/temperature": head.loss.temperature.value() for name, head in heads}

    def diagnostics(self) -> dict[str, float]:
        """Computes each head's statistics of the last batch, keyed by `heads/<name>/<statistic>`."""
        return {
            f"heads/{name}/{key}": value
            for name, head in self.named_heads()
            for key, value in head.diagnostics().items()
        }


class ContrastiveModel(nn.Module):
    """Holds encoder and objective as one module, so that DDP averages the gradients of both.

    `forward` runs the encoder alone, which may process a part of a batch; the objective needs the embeddings
    of the whole batch, so its caller runs it separately.
    """

    def __init__(self, encoder: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.encoder = encoder
        self.objective = objective

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Returns the encoder's output (R, O): embeddings, and for some encoders label logits after them."""
        output_RO: Tensor = self.encoder(**inputs)
        return output_RO
