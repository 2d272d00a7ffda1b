"""Declares a metric: its name, whether larger or smaller values are better, and how it is computed.

Shapes: N rows, L labels, C classes, B blocks; (...) any leading axes, such as one for the settings of a
sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from mlcl.evaluation.embedded_rows import EmbeddedRows
from mlcl.evaluation.predictions import ClassPrediction, Counts, LabelPrediction
from mlcl.evaluation.rankings_without import LabelBlocks
from mlcl.evaluation.tasks import Array, Task
from mlcl.plugins import Registry


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Declares a metric as a value at the top of a module of `mlcl.evaluation.metrics`, or of a plugin.

    The functions that compute a metric determine the tasks that have it: `counts` or `labels` for multi-label
    predictions; `hits`, `class_counts` or `classes` for classes, where the value of a task with aspects is
    the mean over aspects. A metric of embeddings is an `EmbeddingMetric`.

    Attributes:
        name: The name in jobs and logs.
        summary: One line that explains the metric.
        source: The publication or library that defines the metric.
        mode: Whether larger (`max`) or smaller (`min`) values are better.
        group: The name of the group with which a job requests the metric in `evaluation.metrics`; a metric
            without a group is always computed.
        counts: Takes the `Counts` (..., L) of predicted labels and returns values (...). With it the search
            after training scores all lambdas at once.
        pooled: Whether `counts` returns the same value if the counts of all labels are added up first.
        labels: Takes a `LabelPrediction` and returns the value.
        depth: The number of a row's most probable labels that `labels` needs; the metric is left out if there
            are fewer labels.
        ranks: Whether `labels` reads only the probabilities, not which labels are predicted.
        masked: Whether `labels` leaves out entries that are not `known`; if not, the metric is NaN if there
            are such entries.
        without_blocks: Takes `LabelBlocks` and returns the values (B,) of `labels` without each block of
            rows; a value is NaN where that of `labels` is. By default `labels` is computed once for each
            block.
        hits: Takes the number of right rows and of all known rows (...), and returns values (...). Like
            `counts` it scores all lambdas at once. The value of each aspect is a metric, too,
            `<name>_<aspect>`.
        class_counts: Takes the `Counts` (..., C) of classes and returns values (...).
        classes: Takes a `ClassPrediction` and returns the value.

    Raises:
        ValueError: There is no function, there are two for one kind of task, there is `without_blocks`
            without `labels`, or `mode` is neither `max` nor `min`.

    Example:
        >>> ERRORS = Metric(name="errors", summary="share of wrong rows", source="an example", mode="min",
        ...                 hits=lambda right, known: 1 - right / known)
    """

    name: str
    summary: str
    source: str
    mode: Literal["max", "min"] = "max"
    group: str = ""
    counts: Callable[[Counts], Array] | None = field(default=None, repr=False)
    pooled: bool = False
    labels: Callable[[LabelPrediction], float] | None = field(default=None, repr=False)
    depth: int = 1
    ranks: bool = False
    masked: bool = False
    without_blocks: Callable[[LabelBlocks], Array] | None = field(default=None, repr=False)
    hits: Callable[[Array, Array], Array] | None = field(default=None, repr=False)
    class_counts: Callable[[Counts], Array] | None = field(default=None, repr=False)
    classes: Callable[[ClassPrediction], float] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_mode(self)
        class_functions = [function for function in (self.hits, self.class_counts, self.classes) if function]
        if (self.counts and self.labels) or len(class_functions) > 1:
            raise ValueError(f"metric {self.name} is computed in two ways; allowed: one for a kind of task")
        if self.without_blocks and not self.labels:
            raise ValueError(f"metric {self.name} has without_blocks; allowed: beside labels")
        if not self.tasks:
            raise ValueError(f"metric {self.name} needs one of counts, labels, hits, class_counts, classes")

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The kinds of task that have this metric."""
        scored = self.hits or self.class_counts or self.classes
        classes: tuple[Task, ...] = ("single", "aspects") if scored else ()
        return (*classes, "multi_label") if self.counts or self.labels else classes

    @property
    def per_aspect(self) -> bool:
        """Whether the value of each aspect is a metric, besides the mean over the aspects."""
        return self.hits is not None

    @property
    def thresholded(self) -> bool:
        """Whether the value for a multi-label prediction depends on which labels are predicted."""
        return self.counts is not None or (self.labels is not None and not self.ranks)

    @property
    def takes_unknown(self) -> bool:
        """Whether the metric of a multi-label prediction has a value if there are unknown entries."""
        return self.counts is not None or self.masked

    def of_labels(self, prediction: LabelPrediction) -> float:
        """Returns the value for a multi-label prediction."""
        if self.counts is not None:
            return float(self.counts(prediction.counts))
        assert self.labels is not None
        if prediction.known is not None and not self.takes_unknown:
            return float("nan")
        return float(self.labels(prediction))

    def of_classes(self, prediction: ClassPrediction) -> float:
        """Returns the value for a prediction of classes."""
        if self.hits is not None:
            return float(self.hits(prediction.right.sum(), np.asarray(len(prediction.targets))))
        if self.class_counts is not None:
            return float(self.class_counts(prediction.counts))
        assert self.classes is not None
        return float(self.classes(prediction))


@dataclass(frozen=True, kw_only=True)
class EmbeddingMetric(Metric):
    """Declares a metric of a split's embeddings and label sets, for all tasks, computed once, after training.

    `masked` says whether the metric leaves out unknown entries of the label sets; if not, it is NaN if there
    are such entries. `of_rows` takes `EmbeddedRows` and returns the value. Raises ValueError if the metric
    has no group, or `mode` is neither `max` nor `min`.
    """

    of_rows: Callable[[EmbeddedRows], float] = field(repr=False)

    def __post_init__(self) -> None:
        _check_mode(self)
        if not self.group:
            raise ValueError(f"metric {self.name} of embeddings needs a group")

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The kinds of task that have this metric."""
        return ("single", "aspects", "multi_label")


def _check_mode(metric: Metric) -> None:
    if metric.mode not in ("max", "min"):
        raise ValueError(f"metric {metric.name} has the mode {metric.mode!r}; allowed: max, min")


METRICS = Registry("metric", "mlcl.metrics", "mlcl.evaluation.metrics", Metric)
"""All metrics, keyed by name: built-in ones, and those of installed packages and of files that jobs name."""
