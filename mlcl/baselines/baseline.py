"""What a baseline declares: what it reads of a data set, and how it is fitted.

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
    """What a baseline is fitted to, and what chooses between its settings.

    `rows` (N, F) and `validation` (M, F) are float32, sparse or dense; (N, 0) where the baseline reads
    nothing. `targets` are those of `rows`, and `n_classes` how many classes or labels there are. `figure`
    gives the figure of probabilities of the validation rows; more is better. `check_stop` is called between
    steps of a few seconds and raises where a stop is asked for.
    """

    task: Task
    n_classes: int
    rows: Any
    targets: Targets
    validation: Any
    figure: Callable[[Tensor], float]
    check_stop: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Fitted:
    """A fitted baseline: `probabilities` of rows (M, F), shaped as the task has them, float32.

    `chosen` are the settings that validation chose, by name.
    """

    probabilities: Callable[[Any], Tensor]
    chosen: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Baseline:
    """One baseline: a value at the top of a module of `mlcl.baselines.methods`, or of one from outside.

    `name` is what jobs call it, `title` one line on what it is. `fit` must give the same for the same
    problem, for a baseline is fitted once for all seeds. `each_class`: it fits one model for each class or
    label, which takes long for thousands of them.
    """

    name: str
    title: str
    reads: Reads
    fit: Callable[[Problem], Fitted] = field(repr=False)
    each_class: bool = False


BASELINES = Registry("baseline", "mlcl.baselines", "mlcl.baselines.methods", Baseline)
"""Every baseline by its name: built in, of installed packages, and of files that jobs name."""


def best_of(problem: Problem, values: Sequence[float], name: str, fit: Callable[[float], Fitted]) -> Fitted:
    """The fit with the best figure on validation, of ascending values of the setting `name`.

    Ends with the first value that is worse than the one before: larger ones take longer.
    """
    best, best_figure = None, float("-inf")
    for value in values:
        fitted = fit(value)
        figure = problem.figure(fitted.probabilities(problem.validation))
        if figure < best_figure:
            break
        if best is None or figure > best_figure:
            best, best_figure = Fitted(fitted.probabilities, {name: value}), figure
    assert best is not None
    return best
