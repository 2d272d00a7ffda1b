"""What a metric declares: its name, the side that is better, and how it is computed.

Shapes: N rows, L labels; any leading axes, such as one for the settings of a sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from mlcl.evaluation.embedded_rows import EmbeddedRows
from mlcl.evaluation.predictions import ClassPrediction, Counts, LabelPrediction
from mlcl.evaluation.tasks import Array, Task
from mlcl.plugins import Registry


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric: a value of a module of `mlcl.evaluation.metrics`, or of one from outside.

    `name` is what jobs and logs call it, `summary` one line on what it is, `source` where it is defined;
    `mode` says whether more or less is better. A metric with a `group` is measured where a job asks for the
    group in `evaluation.metrics`, one without always. How it is computed decides for which tasks it is there.

    For multi-label predictions one of

    - `counts`, which takes the `Counts` (..., L) of thresholded labels and gives (...): the search after
      training then scores all lambdas at once. With `pooled` the labels may be added up to one before;
    - `labels`, which takes a `LabelPrediction`. `depth` is how many of a row's first labels it looks at: for
      fewer labels the metric is left out. With `ranks` it reads the probabilities alone, not what is
      predicted from them. With `masked` it leaves out the entries that are not `known`; without, it is NaN
      where there are any.

    For classes, where the value of several aspects is the mean over them, one of

    - `hits`, which takes the numbers of right and of all known rows (...): counted as above. Each aspect's
      own value is given besides, as `<name>_<aspect>`;
    - `classes`, which takes a `ClassPrediction`.

    A metric of embeddings instead of predictions is an `EmbeddingMetric`.

    Raises ValueError for a declaration with none of them, or two for one kind of task.
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
    hits: Callable[[Array, Array], Array] | None = field(default=None, repr=False)
    classes: Callable[[ClassPrediction], float] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.counts and self.labels) or (self.hits and self.classes):
            raise ValueError(f"metric {self.name} is computed in two ways; allowed: one for a kind of task")
        if not self.tasks:
            raise ValueError(f"metric {self.name} needs one of counts, labels, hits, classes")

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that have it."""
        classes: tuple[Task, ...] = ("single", "aspects") if self.hits or self.classes else ()
        return (*classes, "multi_label") if self.counts or self.labels else classes

    @property
    def per_aspect(self) -> bool:
        """Whether each aspect's own value is given beside the mean over the aspects."""
        return self.hits is not None

    @property
    def thresholded(self) -> bool:
        """Whether its value for several labels depends on which of them are predicted."""
        return self.counts is not None or (self.labels is not None and not self.ranks)

    @property
    def takes_unknown(self) -> bool:
        """Whether it has a value for labels of which some entries are not known."""
        return self.counts is not None or self.masked

    def of_labels(self, prediction: LabelPrediction) -> float:
        """The value of a multi-label prediction."""
        if self.counts is not None:
            return float(self.counts(prediction.counts))
        assert self.labels is not None
        if prediction.known is not None and not self.takes_unknown:
            return float("nan")
        return float(self.labels(prediction))

    def of_classes(self, prediction: ClassPrediction) -> float:
        """The value of a prediction of classes."""
        if self.hits is not None:
            return float(self.hits(prediction.right.sum(), np.asarray(len(prediction.targets))))
        assert self.classes is not None
        return float(self.classes(prediction))


@dataclass(frozen=True, kw_only=True)
class EmbeddingMetric(Metric):
    """A metric of a split's embeddings and label sets, for all tasks: `of_rows` takes `EmbeddedRows`.

    It is measured once, after training. `masked` says that it leaves out the unknown entries of the label
    sets; without, it is NaN where there are any. Raises ValueError for one without a group.
    """

    of_rows: Callable[[EmbeddedRows], float] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.group:
            raise ValueError(f"metric {self.name} of embeddings needs a group")

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that have it."""
        return ("single", "aspects", "multi_label")


METRICS = Registry("metric", "mlcl.metrics", "mlcl.evaluation.metrics", Metric)
"""Every metric by its name: built in, of installed packages, and of files that jobs name."""
