"""Verdicts on two arms: whether one is better, by how much, and if undecided, how many seeds would decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mlcl.backports import StrEnum
from mlcl.significance.arms import Arm, ArmSummary, Difference, Pairing, difference_of
from mlcl.significance.deciders import Decider, cheapest_decider
from mlcl.significance.paired_tests import LEVEL

Question = Literal["heads", "baseline", "settings", "values"]
"""The question of a verdict: heads against the control, the best model against the best baseline, any two
settings, or (`values`) any two settings in a metric for which neither higher nor lower is better."""
DIGITS = 4


class Conclusion(StrEnum):
    """The four answers of a verdict."""

    HELPS = "helps"
    HURTS = "hurts"
    NO_DIFFERENCE = "makes no difference"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Verdict:
    """The verdict on a treated arm against a reference in a test metric.

    Attributes:
        margin: The largest difference that does not matter, in the metric's units.
        rows: The number of test rows, 0 if unknown.
        difference: The difference of the means, positive where the treated arm is better, also for mode min.
        interval: The confidence interval of the difference; None where no standard error can be estimated.
        shares: The fractions of the variance that come from `searches`, `seeds` and test `rows`.
        rows_counted: Whether the interval includes the variance from the test rows.
        single: The labels of the searched arms that have only one search.
        search_deviation: The assumed standard deviation of the outcome of the only search of the arms in
            `single`; 0 where the verdict speaks of the settings that these searches found.
        decider: An estimate of the seeds, searches or rows that would decide; None if the interval is narrow
            enough or unknown.
        level: The confidence level of the interval, corrected for the number of `tests`, by Holm's method.
        paired: `seed` or `search` if outcomes of equal seeds or search numbers were subtracted first.

    Example:
        >>> verdict = compare_arms(control, heads, question="heads", metric="test/f1", mode="max")
        >>> verdict.answer
        <Conclusion.HELPS: 'helps'>
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
    tests: int = 1
    paired: Pairing = ""
    search_deviation: float = 0.0

    @property
    def answer(self) -> Conclusion:
        """No difference if the whole interval is within the margin; else helps or hurts if it excludes 0."""
        if self.interval is None:
            return Conclusion.CANNOT_TELL
        low, high = self.interval
        if -self.margin <= low and high <= self.margin:
            return Conclusion.NO_DIFFERENCE
        if low > 0:
            return Conclusion.HELPS
        return Conclusion.HURTS if high < 0 else Conclusion.CANNOT_TELL

    @property
    def sentence(self) -> str:
        """The verdict as a sentence, with means, difference, interval, and what the interval comes from."""
        means = f"{self.treated.mean:.{DIGITS}f} against {self.reference.mean:.{DIGITS}f}"
        suffix = " without heads" if self.question == "heads" else ""
        parts = [f"{self._claim()}: {self.metric} {means}{suffix}, {self._interval()}"]
        if self.answer is Conclusion.CANNOT_TELL and self.decider is not None:
            parts.append(self.decider.sentence)
        if self.paired:
            parts.append(f"outcomes of one {self.paired} were subtracted first")
        if self.interval is not None and self.difference == 0 == self.interval[1] - self.interval[0]:
            parts.append("both are the same trainings")
        elif not self.rows_counted:
            parts.append("the error of the test rows is not counted")
        arms = ", ".join(self.single)
        if self.search_deviation:
            parts.append(f"one search ({arms}) is taken to vary by {self.search_deviation:g}: run three")
        elif self.single:
            parts.append(f"it speaks of the settings of one search ({arms})")
        return "; ".join(parts) + "."

    def as_dict(self) -> dict[str, Any]:
        """Returns the verdict's fields, answer and sentence as a dict for JSON."""
        return {"answer": self.answer.value, "sentence": self.sentence} | asdict(self)

    def _claim(self) -> str:
        if self.question == "heads":
            unsure = self.answer is Conclusion.CANNOT_TELL
            verb = {Conclusion.HELPS: "help", Conclusion.HURTS: "hurt"}.get(self.answer, "make no difference")
            return "Cannot tell whether the heads help" if unsure else f"The heads {verb}"
        model, baseline = self.treated.label, self.reference.label
        if self.question == "baseline":
            model, baseline = f"the best model, {model},", f"the best baseline, {baseline}"
        more, less = ("higher", "lower") if self.question == "values" else ("better", "worse")
        claim = {
            Conclusion.HELPS: f"{model} is {more} than {baseline}",
            Conclusion.HURTS: f"{model} is {less} than {baseline}",
            Conclusion.NO_DIFFERENCE: f"{model} makes no difference to {baseline}",
            Conclusion.CANNOT_TELL: f"cannot tell whether {model} is {more} than {baseline}",
        }[self.answer]
        starts_with_label = self.question != "baseline" and self.answer is not Conclusion.CANNOT_TELL
        return claim if starts_with_label else claim[0].upper() + claim[1:]  # a label keeps its spelling

    def _interval(self) -> str:
        form = f"+.{DIGITS}f"
        direction = " (positive is better)" if self.mode == "min" else ""
        difference = f"{self.difference:{form}}{direction}"
        if self.interval is None:
            return f"{difference}, without an interval: its error is not known"
        low, high = self.interval
        limit = f", within {self.margin:g}" if self.answer is Conclusion.NO_DIFFERENCE else ""
        correction = f", corrected for {self.tests} comparisons" if self.tests > 1 else ""
        interval = f"{self.level * 100:.3g} % interval {low:{form}} to {high:{form}}"
        names = {"searches": "searches", "seeds": "seeds", "rows": "test rows"}
        shares = [f"{names[part]} {share:.0%}" for part, share in self.shares.items() if share >= 0.005]
        parts = f"; variance: {', '.join(shares)}" if shares else ""
        return f"{difference} ({interval}{limit}{correction}{parts})"


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
    """Compares the means of two arms, with the variances from searches, seeds and test rows.

    The variance from test rows is included if every training has values for the same number of blocks. Failed
    trainings (a value that is not finite) are left out. `metric` is the test metric's name, `mode` is max or
    min, `margin` the largest difference that does not matter, in the metric's units, `rows` the number of
    test rows, 0 if unknown. Raises ValueError where an arm has no finite value.
    """
    difference = difference_of(reference, treated, metric, mode)
    return _build_verdict(
        difference, question=question, metric=metric, mode=mode, margin=margin, rows=rows, level=level
    )


def compare_family(
    pairs: Sequence[Difference],
    question: Question,
    *,
    metric: str,
    mode: str,
    margin: float = 0.005,
    rows: int = 0,
) -> tuple[Verdict, ...]:
    """Returns the verdicts on several differences, with the levels of Holm's step-down procedure.

    The k-th smallest of m p-values is tested at (1 - LEVEL) / (m - k + 1); after the first that is not
    significant, all further ones are tested at its level. Each interval has the level of its test.
    Differences without a standard error have no test and do not count in m.
    """
    risk = 1 - LEVEL
    order = sorted((i for i, pair in enumerate(pairs) if pair.p is not None), key=lambda i: pairs[i].p or 0.0)
    levels = dict.fromkeys(range(len(pairs)), LEVEL)
    n_left = len(order)
    for index in order:
        levels[index] = 1 - risk / n_left
        if (pairs[index].p or 0.0) <= risk / n_left:
            n_left -= 1
    return tuple(
        _build_verdict(pair, question=question, metric=metric, mode=mode, margin=margin, rows=rows,
                 level=levels[number], tests=len(order))
        for number, pair in enumerate(pairs)
    )  # fmt: skip


def _build_verdict(
    difference: Difference,
    *,
    question: Question,
    metric: str,
    mode: str,
    margin: float,
    rows: int,
    level: float,
    tests: int = 1,
) -> Verdict:
    reference, treated = difference.summaries
    trained_arms = [
        (arm, summary)
        for arm, summary in zip(difference.arms, difference.summaries, strict=True)
        if not (arm.fitted or difference.same)
    ]
    deviations = [arm.assumed_deviation for arm in difference.arms if math.isfinite(arm.assumed_deviation)]
    deviation = 0.0 if difference.same else max(deviations, default=0.0)
    decider = (
        difference.is_known
        and not deviation
        and cheapest_decider(
            difference.errors,
            target=max(abs(difference.value), margin - abs(difference.value)),
            searches=min((summary.searches for _, summary in trained_arms), default=0),
            seeds=difference.seeds,
            trainings=max((summary.trainings for _, summary in trained_arms), default=0),
            rows=rows if difference.errors.blocks else 0,
            level=level,
        )
    )
    return Verdict(
        question=question,
        metric=metric,
        mode=mode,
        margin=margin,
        rows=rows,
        treated=treated,
        reference=reference,
        difference=difference.value,
        interval=difference.interval(level),
        shares=difference.errors.shares(),
        rows_counted=difference.same or difference.errors.blocks > 0,
        single=tuple(
            summary.label for arm, summary in trained_arms if arm.searched and summary.searches == 1
        ),
        decider=decider or None,
        level=level,
        tests=tests,
        paired=difference.paired,
        search_deviation=deviation,
    )
