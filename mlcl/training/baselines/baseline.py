"""The declaration of a baseline, the problem that it is fitted to, and the fitted model.

Shapes: N training rows, M rows of another split, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from mlcl.evaluation import Targets, Task
from mlcl.plugins import Registry

Reads = Literal["nothing", "tfidf", "pixels", "column", "encoder"]
"""The features of a row: none, TF-IDF, pixels, the vector itself, or the output of a frozen encoder."""


@dataclass(frozen=True)
class Problem:
    """The training rows that a baseline is fitted to, and the validation rows that choose its settings.

    Args:
        task: The kind of prediction: one class, several labels or a rating for each aspect.
        n_classes: The number of classes or labels.
        rows: Training features (N, F) float32, sparse or dense; (N, 0) if the baseline reads nothing.
        targets: The targets of `rows`.
        validation: Validation features (M, F), of the type of `rows`.
        score: Returns the job's metric for probabilities of the validation rows; larger is better.
        check_stop: Called between steps of a few seconds; raises if a stop was requested.
    """

    task: Task
    n_classes: int
    rows: Any
    targets: Targets
    validation: Any
    score: Callable[[Tensor], float]
    check_stop: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Fitted:
    """A fitted baseline.

    Args:
        probabilities: Returns float32 probabilities, shaped as the task requires, for rows (M, F).
        chosen: The settings that validation chose, by name.
    """

    probabilities: Callable[[Any], Tensor]
    chosen: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Baseline:
    """A baseline, declared as a value at the top of a module of `methods/` or of a plugin from outside.

    Args:
        name: The name that jobs use.
        title: One line that describes the baseline.
        reads: The features of a row that it is fitted to.
        fit: Fits the baseline. Equal problems must give equal results: one fit serves the runs of all seeds.
        each_class: Whether one model is fitted for each class or label, which takes long for thousands.

    Example:
        >>> MAJORITY = Baseline("majority", "the most frequent class", "nothing", fit)
    """

    name: str
    title: str
    reads: Reads
    fit: Callable[[Problem], Fitted] = field(repr=False)
    each_class: bool = False


BASELINES = Registry("baseline", "mlcl.baselines", "mlcl.training.baselines.methods", Baseline)
"""All baselines by name: built in, from installed packages, and from plugin files of jobs."""


def best_of(problem: Problem, values: Sequence[float], name: str, fit: Callable[[float], Fitted]) -> Fitted:
    """Returns the fit with the best validation score among ascending values of the setting `name`.

    Stops at the first value that scores worse than the best before it, since larger values take longer.
    """
    best, best_score = None, float("-inf")
    for value in values:
        fitted = fit(value)
        score = problem.score(fitted.probabilities(problem.validation))
        if score < best_score:
            break
        if best is None or score > best_score:
            best, best_score = Fitted(fitted.probabilities, {name: value}), score
    assert best is not None
    return best
