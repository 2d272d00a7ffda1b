"""A queue of the rows of past batches, which a loss compares its anchors with.

Shapes: B rows of all processes, Q rows of the queue, D embedding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses.batch import LossRows
from mlcl.losses.sets import mix
from mlcl.losses.weights.base import BatchRanks


class Queue:
    """The newest rows of past batches, at most `size`: embeddings without gradient, labels and sample ids.

    `join` adds the queue's rows to a batch, `push` adds the last batch's rows to the queue. The queue's rows
    are candidates of every anchor, positive or not by their labels, and are no anchors. Rows of a sample that
    is in the batch are not joined, so that no anchor is compared with an older embedding of itself. The rows
    are the same, in the same order, in every process and for any number of processes. A copy of a loss,
    also by pickle, has an empty queue; `state` and `load` store and restore it. Source: MoCo (He et al.
    2020), section 3.1, without its momentum encoder.
    """

    def __init__(self, size: int) -> None:
        if type(size) is not int or size < 1:
            raise ValueError(f"queue; found: {size!r}; allowed: 1 or more rows")
        self.size = size
        self._rows: LossRows | None = None
        self._last_batch: LossRows | None = None

    def __len__(self) -> int:
        return 0 if self._rows is None else len(self._rows.embeddings)

    def __getstate__(self) -> dict[str, Any]:
        # A pickled queue is empty: workers get a loss as it was built.
        return {"size": self.size, "_rows": None, "_last_batch": None}

    def join(self, batch: LossRows) -> LossRows:
        """Appends the queue's rows to the batch, except those of the batch's samples; keeps it for `push`.

        Raises:
            ValueError: The batch has no sample ids.
        """
        if batch.sample_ids is None:
            raise ValueError("a loss with a queue needs sample_ids (B,): the sample of each row; found: None")
        labels = batch.labels.without_unknown() if isinstance(batch.labels, LabelRows) else batch.labels
        self._last_batch = replace(batch, embeddings=batch.embeddings.detach(), labels=labels)
        if self._rows is None:
            return batch
        self._rows = _move_rows(self._rows, self._last_batch)
        assert self._rows.sample_ids is not None
        kept_Q = ~torch.isin(self._rows.sample_ids, batch.sample_ids)
        queue_rows = _take_rows(self._rows, kept_Q.nonzero()[:, 0])
        all_rows = _cat_rows(replace(batch, labels=labels), queue_rows)
        return replace(all_rows, ranks=batch.ranks.with_queue(len(queue_rows.embeddings)))

    def push(self) -> None:
        """Adds the batch of the last `join` and drops the oldest rows, in the order of a hash of sample ids.

        The order does not depend on which process had which samples, and is unrelated to that of the data.
        """
        batch, self._last_batch = self._last_batch, None
        if batch is None:
            return
        assert batch.sample_ids is not None
        order_B = batch.ranks.local_rows(torch.arange(len(batch.embeddings), device=batch.sample_ids.device))
        order_B = order_B[mix(batch.sample_ids[order_B].long()).argsort(stable=True)]
        new_rows = _take_rows(batch, order_B[-self.size :])
        if self._rows is not None:
            new_rows = _cat_rows(self._rows, new_rows)
            rows = len(new_rows.embeddings)
            new_rows = _take_rows(new_rows, torch.arange(max(0, rows - self.size), rows))
        self._rows = replace(new_rows, ranks=BatchRanks())

    def state(self) -> dict[str, Any]:
        """Returns the rows as tensors and numbers by name, for a checkpoint; {} for an empty queue."""
        if self._rows is None:
            return {}
        labels: Any = self._rows.labels
        if isinstance(labels, LabelRows):
            names = ("offsets", "columns", "width", "levels")
            labels = {name: getattr(labels, name) for name in names}
        return {
            "embeddings": self._rows.embeddings,
            "labels": labels,
            "sample_ids": self._rows.sample_ids,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replaces the rows by those that `state` returned."""
        self._last_batch = self._rows = None
        if state:
            labels = state["labels"]
            labels = LabelRows(**labels) if isinstance(labels, dict) else labels
            self._rows = LossRows(state["embeddings"], labels, state["sample_ids"], BatchRanks())


def _map_values(rows: LossRows, change: Callable[[str, Any], Any]) -> LossRows:
    """Returns a copy with embeddings, labels and sample ids changed by `change(name, value)`, if not None."""
    names = ("embeddings", "labels", "sample_ids")
    values: dict[str, Any] = {
        name: change(name, value) for name in names if (value := getattr(rows, name)) is not None
    }
    return replace(rows, **values)


def _take_rows(rows: LossRows, index: Tensor) -> LossRows:
    return _map_values(rows, lambda _, value: value[index.to(value.device)])


def _cat_rows(first: LossRows, last: LossRows) -> LossRows:
    def cat_values(name: str, value: Any) -> Any:
        parts = [value, getattr(last, name)]
        return LabelRows.cat(parts) if isinstance(value, LabelRows) else torch.cat(parts)

    return _map_values(first, cat_values)


def _move_rows(rows: LossRows, batch: LossRows) -> LossRows:
    """Moves rows to the devices of `batch`: rows from a checkpoint are in the host's memory."""
    return _map_values(rows, lambda name, value: value.to(getattr(batch, name).device))
