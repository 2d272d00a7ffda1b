"""Whether the best model beats the best baseline: chosen on validation, compared on test, paired by seed."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Flag, auto
from typing import Any, Literal, Self

from mlcl.significance.paired_tests import LEVEL, Paired, compare_paired, smallest_p

Result = Literal["beats", "loses to", "undecided", "same"]


class Role(Flag):
    """The role of an arm and its settings in a comparison. The control is a baseline, too."""

    MODEL = auto()
    BASELINE = auto()
    CONTROL = auto()

    @classmethod
    def named(cls, names: Iterable[str]) -> Role:
        """The roles with these names in lower case. Raises KeyError for another name."""
        role = cls(0)
        for name in names:
            role |= cls[name.upper()]
        return role


@dataclass(frozen=True)
class Contender:
    """A setting with its scores by seed: on validation, by which the best one is chosen, and on test."""

    label: str
    role: Role
    validation: Mapping[int, float]
    test: Mapping[int, float]

    @classmethod
    def of(cls, label: str, role: Role, score: str, metrics: Mapping[int, Mapping[str, float]]) -> Self:
        """From the metrics of each seed, by the `score` of validation (`val/micro_f1`); see `figure_name`."""
        return cls(label, role, _finite(score, metrics), _finite(score.replace("val/", "test/"), metrics))


def figure_name(score: str, metrics: Container[str]) -> str:
    """The score's name among the metrics of a run: a baseline has no neighbours, and is scored without."""
    return score if score in metrics else re.sub(r"^knn(_best)?/", "", score)


def _finite(score: str, metrics: Mapping[int, Mapping[str, float]]) -> dict[int, float]:
    figures = {seed: its.get(figure_name(score, its), math.nan) for seed, its in metrics.items()}
    return {seed: figure for seed, figure in figures.items() if math.isfinite(figure)}


@dataclass(frozen=True)
class BaselineVerdict:
    """The best model against the best baseline; `paired` has the baseline first. `metric` is of test.

    `paired` is None where both are the same setting. `digits` after the point are
    written.
    """

    metric: str
    mode: str
    model: str
    baseline: str
    paired: Paired | None
    digits: int = 4

    @property
    def result(self) -> Result:
        """Decided where p is at most 0.05."""
        if self.paired is None:
            return "same"
        if self.paired.p > 1 - LEVEL:
            return "undecided"
        return "beats" if (self.paired.difference > 0) == (self.mode == "max") else "loses to"

    @property
    def sentence(self) -> str:
        """The verdict in words, with the numbers behind it."""
        if self.paired is None:
            both = "The best model and the best baseline are the same setting"
            return f"{both}, {self.model}: there is no difference to test."
        theirs, ours = (f"{mean:.{self.digits}f}" for mean in self.paired.means)
        if self.result == "undecided":
            said = (
                f"Not decided whether the best model, {self.model}, beats the best baseline, {self.baseline}"
            )
        else:
            said = f"The best model, {self.model}, {self.result} the best baseline, {self.baseline}"
        return f"{said}: {self.metric} {ours} against {theirs}, {self._numbers(self.paired)}."

    def _numbers(self, its: Paired) -> str:
        form = f"+.{self.digits}f"
        parts = [f"difference {its.difference:{form}}"]
        if its.interval is not None:
            low, high = its.interval
            parts.append(f"{LEVEL:.0%} interval {low:{form}} to {high:{form}}")
        parts.append(f"p = {its.p:.3g} over {its.n} seed{'' if its.n == 1 else 's'}")
        if smallest_p(its.n) > 1 - LEVEL:
            parts.append(f"which can never reach {1 - LEVEL:.2g}")
        further = its.further_seeds()
        if further:
            parts.append(f"about {further} more seeds would decide")
        return ", ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        tree = {"result": self.result, "sentence": self.sentence}
        return tree | asdict(self)


def compare_baselines(
    contenders: Sequence[Contender], metric: str, mode: str, digits: int = 4
) -> BaselineVerdict | None:
    """The best of each role by the mean on validation, of equals the first, over their common test seeds.

    None where there is no model or no baseline, or where they share no seed.
    """
    model, baseline = (best_of(contenders, role, mode) for role in (Role.MODEL, Role.BASELINE))
    if model is None or baseline is None:
        return None
    if model is baseline:
        return BaselineVerdict(metric, mode, model.label, baseline.label, None, digits)
    seeds = sorted(model.test.keys() & baseline.test.keys())
    if not seeds:
        return None
    paired = compare_paired([baseline.test[s] for s in seeds], [model.test[s] for s in seeds])
    return BaselineVerdict(metric, mode, model.label, baseline.label, paired, digits)


def best_of(contenders: Sequence[Contender], role: Role, mode: str) -> Contender | None:
    """The best of a role by the mean on validation, of those with scores on both splits; None for none."""
    sign = 1 if mode == "max" else -1
    known = [each for each in contenders if role in each.role and each.validation and each.test]
    return max(known, key=lambda each: sign * statistics.fmean(each.validation.values()), default=None)
