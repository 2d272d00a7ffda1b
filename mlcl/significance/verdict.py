"""The verdict on two arms: whether one helps, by how much, and what would decide."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from mlcl.significance.arm_errors import Array, arm_error, half_width, rows_variance
from mlcl.significance.deciders import Decider, Errors, cheapest_decider
from mlcl.significance.paired_tests import LEVEL

Question = Literal["heads", "baseline"]
DIGITS = 4


@dataclass(frozen=True)
class Outcome:
    """One confirmed training: its seed, its test metric, and the metric without each block of test rows."""

    seed: int
    value: float
    blocks: tuple[float, ...] = ()


@dataclass(frozen=True)
class Arm:
    """The confirmed trainings of an arm, one tuple for each search's pick.

    A fitted baseline (`fitted`) is one search of one outcome, without an error of searches and seeds.
    """

    label: str
    searches: tuple[tuple[Outcome, ...], ...]
    fitted: bool = False


@dataclass(frozen=True)
class ArmSummary:
    """An arm's label, its mean, and the searches and trainings behind it."""

    label: str
    mean: float
    searches: int
    trainings: int


class Answer(StrEnum):
    """The four answers of a verdict."""

    HELPS = "helps"
    HURTS = "hurts"
    NO_DIFFERENCE = "makes no difference"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Verdict:
    """A treated arm against a reference by a test metric.

    `difference` and `interval` are positive where the treated arm is better, also for a `mode` of min.
    `interval` is None where no error can be estimated. `shares` of its variance come from searches, seeds and
    test rows. `rows_counted`: whether test rows are part of it. `single`: labels of arms with one search.

    Example:
        >>> verdict = compare_arms(control, heads, question="heads", metric="test/f1", mode="max")
        >>> verdict.answer
        <Answer.HELPS: 'helps'>
    """

    question: Question
    metric: str
    mode: str
    margin: float
    rows: int
    treated: ArmSummary
    reference: ArmSummary
    difference: float
    interval: tuple[float, float] | None
    shares: dict[str, float]
    rows_counted: bool
    single: tuple[str, ...]
    decider: Decider | None
    level: float = LEVEL

    @property
    def answer(self) -> Answer:
        """No difference where the whole interval is within the margin; else decided where it excludes 0."""
        if self.interval is None:
            return Answer.CANNOT_TELL
        low, high = self.interval
        if -self.margin <= low and high <= self.margin:
            return Answer.NO_DIFFERENCE
        if low > 0:
            return Answer.HELPS
        return Answer.HURTS if high < 0 else Answer.CANNOT_TELL

    @property
    def sentence(self) -> str:
        """The verdict in words, with the numbers behind it."""
        parts = [f"{self._claim()}: {self.metric} {self._means()}, {self._interval()}"]
        if self.answer is Answer.CANNOT_TELL and self.decider is not None:
            parts.append(self.decider.sentence)
        if self.interval is not None and self.difference == 0 == self.interval[1] - self.interval[0]:
            parts.append("both are the same trainings")
        elif not self.rows_counted:
            parts.append("the error of the test rows is not counted")
        if self.single:
            parts.append(f"it speaks of the settings of one search ({', '.join(self.single)})")
        return "; ".join(parts) + "."

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"answer": self.answer.value, "sentence": self.sentence} | asdict(self)

    def _claim(self) -> str:
        if self.question == "heads":
            return {
                Answer.HELPS: "The heads help",
                Answer.HURTS: "The heads hurt",
                Answer.NO_DIFFERENCE: "The heads make no difference",
                Answer.CANNOT_TELL: "Cannot tell whether the heads help",
            }[self.answer]
        model, baseline = self.treated.label, f"the best baseline, {self.reference.label}"
        return {
            Answer.HELPS: f"The best model, {model}, is better than {baseline}",
            Answer.HURTS: f"The best model, {model}, is worse than {baseline}",
            Answer.NO_DIFFERENCE: f"The best model, {model}, makes no difference to {baseline}",
            Answer.CANNOT_TELL: f"Cannot tell whether the best model, {model}, is better than {baseline}",
        }[self.answer]

    def _means(self) -> str:
        last = " without heads" if self.question == "heads" else ""
        return f"{self.treated.mean:.{DIGITS}f} against {self.reference.mean:.{DIGITS}f}{last}"

    def _interval(self) -> str:
        form = f"+.{DIGITS}f"
        better = " (positive is better)" if self.mode == "min" else ""
        difference = f"{self.difference:{form}}{better}"
        if self.interval is None:
            return f"{difference}, without an interval: one training alone has no error"
        low, high = self.interval
        within = f", within {self.margin:g}" if self.answer is Answer.NO_DIFFERENCE else ""
        return f"{difference} ({self.level * 100:g} % interval {low:{form}} to {high:{form}}{within})"


def compare_arms(
    reference: Arm,
    treated: Arm,
    *,
    question: Question,
    metric: str,
    mode: str,
    margin: float = 0.005,
    rows: int = 0,
    level: float = LEVEL,
) -> Verdict:
    """Compares the means of two arms, with the error of searches, seeds and test rows.

    Test rows are counted where every training has the metric without each of the same blocks. Failed
    trainings (a value that is not finite) are left out.

    Args:
        reference: The control or the best baseline.
        treated: The heads or the best model.
        question: What is asked, for the sentence.
        metric: The test metric's name.
        mode: `max`, or `min` where lower is better.
        margin: Differences up to this, in the metric's units, do not matter.
        rows: The number of test rows, 0 where it is unknown.
        level: The interval's confidence.

    Raises:
        ValueError: An arm has no finite value.
    """
    arms = (reference, treated)
    for arm in arms:
        if not any(_finite(search) for search in arm.searches):
            raise ValueError(f"{arm.label} has no finite {metric}")
    same = reference.searches == treated.searches
    parts, means = _errors(arms, same)
    difference = 0.0 if same else (means[1] - means[0]) * (-1 if mode == "min" else 1)
    total = sum(parts.arms) + parts.rows
    unknown = not math.isfinite(total) or (total == 0 and difference != 0)
    half = 0.0 if unknown else float(half_width(*parts.arrays(), level))
    before, after = (_summary(arm, mean) for arm, mean in zip(arms, means, strict=True))
    trained = [each for arm, each in zip(arms, (before, after), strict=True) if not (arm.fitted or same)]
    target = max(abs(difference), margin - abs(difference))
    return Verdict(
        question=question,
        metric=metric,
        mode=mode,
        margin=margin,
        rows=rows,
        treated=after,
        reference=before,
        difference=difference,
        interval=None if unknown else (difference - half, difference + half),
        shares=parts.shares(),
        rows_counted=same or parts.blocks > 0,
        single=tuple(each.label for each in trained if each.searches == 1),
        decider=None if unknown else _decider(parts, target, arms, trained, rows, level),
        level=level,
    )


def _decider(
    parts: Errors, target: float, arms: tuple[Arm, Arm], trained: list[ArmSummary], rows: int, level: float
) -> Decider | None:
    """What brings half the width to `target`; seeds and searches count where an arm is trained."""
    return cheapest_decider(
        parts,
        target=target,
        searches=min((each.searches for each in trained), default=0),
        seeds=_seeds(arms),
        rows=rows if parts.blocks else 0,
        level=level,
    )


def _errors(arms: tuple[Arm, Arm], same: bool) -> tuple[Errors, tuple[float, float]]:
    """The errors of both arms and of the rows, and the means; without any error for the same trainings."""
    first, second = (arm_error(_values(arm)) for arm in arms)
    means = float(first.mean), float(second.mean)
    freedom = float(first.freedom), float(second.freedom)
    if same:
        return Errors((0.0, 0.0), (0.0, 0.0), freedom, 0.0, 0), means
    if arms[0].fitted:
        first = first._replace(variance=np.zeros(()), seeds=np.zeros(()))
    if arms[1].fitted:
        second = second._replace(variance=np.zeros(()), seeds=np.zeros(()))
    rows, blocks = _row_variance(arms)
    variances = float(first.variance), float(second.variance)
    return Errors(variances, (float(first.seeds), float(second.seeds)), freedom, rows, blocks), means


def _finite(search: tuple[Outcome, ...]) -> list[Outcome]:
    """The outcomes whose value is finite: the trainings that did not fail."""
    return [each for each in search if np.isfinite(each.value)]


def _seeds(arms: tuple[Arm, Arm]) -> int:
    """The fewest trainings of a search."""
    counts = [
        len(its) for arm in arms if not arm.fitted for search in arm.searches if (its := _finite(search))
    ]
    return min(counts, default=0)


def _summary(arm: Arm, mean: float) -> ArmSummary:
    searches = [its for search in arm.searches if (its := _finite(search))]
    return ArmSummary(arm.label, mean, len(searches), sum(map(len, searches)))


def _values(arm: Arm) -> Array:
    """The metric as [search, seed], NaN where a search has fewer seeds."""
    longest = max(map(len, arm.searches))
    values = np.full((len(arm.searches), longest), np.nan)
    for place, search in zip(values, arm.searches, strict=True):
        place[: len(search)] = [each.value for each in search]
    return values


def _row_variance(arms: tuple[Arm, Arm]) -> tuple[float, int]:
    """The variance of the difference by test rows, and the number of blocks; zeros where not counted."""
    lengths = {len(each.blocks) for arm in arms for search in arm.searches for each in _finite(search)}
    if len(lengths) != 1 or min(lengths) < 2:
        return 0.0, 0
    reference, treated = (
        np.mean([np.mean([each.blocks for each in its], 0) for s in arm.searches if (its := _finite(s))], 0)
        for arm in arms
    )
    difference = treated - reference
    return (float(rows_variance(difference)), lengths.pop()) if np.isfinite(difference).all() else (0.0, 0)
