"""Declares a baseline, the problem that it is fitted to, and the fitted model.

Shapes: N training rows, M rows of another split, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import Tensor

from mlcl.evaluation import Targets, Task
from mlcl.evaluation.tasks import Array
from mlcl.plugins import Registry

Part = Literal["tfidf", "characters", "words", "pixels", "column", "encoder"]
"""Features of a row that a baseline reads: TF-IDF of words or of characters, the mean of static vectors of
words, pixels, the data set's own vector, or the output of the job's frozen encoder. Rows of `words` and
`encoder` have unit length."""

TEXT: tuple[str, tuple[Part, ...]] = ("TF-IDF of words and of characters", ("tfidf", "characters"))
TEXT_ENCODER: tuple[str, tuple[Part, ...]] = (
    "TF-IDF of words and of characters, outputs of the frozen encoder",
    ("tfidf", "characters", "encoder"),
)
"""Titles and features of the baselines that read several kinds of features."""


@dataclass(frozen=True)
class Problem:
    """The training rows to which a baseline is fitted, and the validation rows that choose its settings.

    Attributes:
        task: The kind of prediction: one class, several labels or a rating for each aspect.
        n_classes: The number of classes or labels.
        rows: Training features (N, F) float32, sparse or dense; (N, 0) if the baseline reads no features.
        targets: The targets of `rows`.
        validation: Validation features (M, F), of the type of `rows`.
        score: Returns the job's metric for probabilities of the validation rows; larger is better.
        check_stop: Called between steps of a few seconds; raises if a stop was requested.
        path: The ancestors of each class in a hierarchy, coarsest first, and last the class itself (C, H);
            None without a hierarchy.
    """

    task: Task
    n_classes: int
    rows: Any
    targets: Targets
    validation: Any
    score: Callable[[Tensor], float]
    check_stop: Callable[[], None] = lambda: None
    path: Array | None = None


@dataclass(frozen=True)
class Fitted:
    """A fitted baseline.

    Attributes:
        probabilities: Returns float32 probabilities for rows (M, F), in the shape of the task, see `Task`.
        chosen: The settings that were chosen on validation, keyed by name.
        tensors: The fitted values, from which `Baseline.restore` rebuilds `probabilities`; empty if the
            baseline cannot be exported.
    """

    probabilities: Callable[[Any], Tensor]
    chosen: Mapping[str, float] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Baseline:
    """A baseline, declared as a value at the top level of a module in `methods/` or of a plugin.

    Attributes:
        name: The name that jobs use.
        title: One line that describes the baseline.
        reads: The features of a row that it is fitted to, side by side; empty if it reads labels alone.
        fit: Fits the baseline. Equal problems must give equal results: one fit serves the runs of all seeds.
        each_class: Whether one model is fitted for each class or label, which takes long for thousands.
        in_sweeps: Whether sweeps and comparisons fit it without being asked.
        hierarchical: Whether it needs single classes with coarser levels, see `Problem.path`.
        restore: Rebuilds the function `Fitted.probabilities` from the task, the number of classes and
            `Fitted.tensors`; None if the baseline cannot be exported.

    Example:
        >>> MAJORITY = Baseline("majority", "the most frequent class", (), fit)
    """

    name: str
    title: str
    reads: tuple[Part, ...]
    fit: Callable[[Problem], Fitted] = field(repr=False)
    each_class: bool = False
    in_sweeps: bool = True
    hierarchical: bool = False
    restore: Callable[[Task, int, Mapping[str, Tensor]], Callable[[Any], Tensor]] | None = field(
        default=None, repr=False
    )


BASELINES = Registry("baseline", "mlcl.baselines", "mlcl.training.baselines.methods", Baseline)
"""All baselines, keyed by name: built-in ones, and those of installed packages and of jobs' plugin files."""


def best_of(problem: Problem, values: Sequence[float], name: str, fit: Callable[[float], Fitted]) -> Fitted:
    """Fits a model for each of the ascending `values` until the score gets worse; returns the best model."""
    best, best_score = None, float("-inf")
    for value in values:
        fitted = fit(value)
        score = problem.score(fitted.probabilities(problem.validation))
        if score < best_score:
            break
        if best is None or score > best_score:
            best, best_score = replace(fitted, chosen={name: value}), score
    assert best is not None
    return best
