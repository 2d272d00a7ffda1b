"""The data collator and the batch sampler of SentenceTransformerTrainer, which take label lists and paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import torch
from sentence_transformers.base.data_collator import BaseDataCollator
from sentence_transformers.base.sampler import DefaultBatchSampler

from mlcl.integrations.label_numbers import LabelNumbers, Labels, RowKind, sampler_labels
from mlcl.samplers import LabelBatchSampler
from mlcl.samplers.label_batches import OrderName


@dataclass
class LabelCollator(BaseDataCollator):
    """A data collator for a label column of label lists, paths or names, see `LabelNumbers`.

    The trainer's own collator takes numbers, or lists of numbers of one length: classes, multi-hot rows or
    paths. The trainer gives prompts and a router mapping to its own collator alone: pass them here.

    Raises:
        ValueError: `LabelNumbers` refuses the labels or the arguments.

    Example:
        >>> collator = LabelCollator(model.preprocess, classes=["music", "sport"])
        >>> collator([{"text": "a ball", "label": ["sport"]}])["label"].tolist()
        [[False, True]]
    """

    classes: Labels | None = None
    levels: Sequence[Labels] | None = None

    def __post_init__(self) -> None:
        self._numbers = LabelNumbers(self.classes, self.levels)

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the tokens of a batch, and its labels as a tensor."""
        column = next((name for name in self.valid_label_columns if features and name in features[0]), None)
        if column is not None:
            labels = self._numbers([row[column] for row in features])
            features = [{**row, column: label} for row, label in zip(features, labels, strict=True)]
        batch: dict[str, Any] = super().__call__(features)
        return batch


def label_batches(
    order: OrderName = "pk", *, labels: RowKind = "lists", k: int = 2, power: float = 0.0, branches: int = 2
) -> partial[LabelBatches]:
    """Returns a `batch_sampler` for the training arguments that draws batches by label.

    Args:
        order: `pk`, `balanced` or `random`; see `LabelBatchSampler`, also for `k`, `power` and `branches`.
        labels: The meaning of lists in the label column: `lists` of labels, `paths`, or `multi_hot` rows.

    Raises:
        ValueError: For an unknown order or meaning.

    Example:
        >>> arguments = SentenceTransformerTrainingArguments("out", batch_sampler=label_batches("pk", k=4))
    """
    for value, allowed in ((order, get_args(OrderName)), (labels, get_args(RowKind))):
        if value not in allowed:
            raise ValueError(f"label_batches; found: {value!r}; allowed: {', '.join(allowed)}")
    return partial(LabelBatches, order=order, labels=labels, k=k, power=power, branches=branches)


class LabelBatches(DefaultBatchSampler):
    """A batch sampler that draws by the label column of the data set; `label_batches` configures it.

    In several processes the trainer gives each process batches of its own: with `gather=True` the loss
    compares the rows of all of them.

    Raises:
        ValueError: The data set has no label column, or `sampler_labels` or `LabelBatchSampler` refuses
            the column.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        drop_last: bool,
        valid_label_columns: list[str] | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
        *,
        labels: RowKind = "lists",
        **options: Any,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, valid_label_columns, generator, seed)
        allowed = valid_label_columns or []
        column = next((name for name in allowed if name in dataset.column_names), None)
        if column is None:
            raise ValueError(f"label column; found: {dataset.column_names}; allowed: {', '.join(allowed)}")
        rows = sampler_labels(dataset[column][:], labels)
        # Accelerate gives each process whole batches, and calls `set_epoch` of the attribute `sampler`.
        self.sampler = LabelBatchSampler(
            rows, batch_size, seed=seed, drop_last=drop_last, rank=0, world_size=1, **options
        )

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration yield the batches of this epoch."""
        self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)
