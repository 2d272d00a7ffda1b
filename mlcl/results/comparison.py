"""Compares settings, or arms of sweeps, in a metric: each gets a verdict against the first one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from mlcl.config import default_mode
from mlcl.config.section import metric_name
from mlcl.config.space.search import HALF_SUFFIX
from mlcl.errors import UserError, did_you_mean
from mlcl.results.compared_setting import (
    ComparedSetting,
    compare_pair,
    join_searches,
    margin_of,
    shares_draws,
)
from mlcl.results.sweep_arms import only_treated_has_heads
from mlcl.significance.arms import Difference
from mlcl.significance.roles import Role, figure_name
from mlcl.significance.verdict import Conclusion, Question, Verdict, compare_family
from mlcl.tracking.names import CLASSIFIER_WEIGHT

PREFIXES = ("test/", "knn_best/test/", "val/", "knn_best/val/")
"""The prefixes that are tried, in this order, where the user gives a metric without a prefix."""
NEIGHBOURS = ("knn/", "knn_best/")
"""The prefixes of the metrics of predictions with k nearest neighbours."""

BlocksOf = Callable[[Path, Sequence[str]], Mapping[str, tuple[float, ...]]]
"""A function of a training's folder and names of metrics that returns, for each metric, its values with one
block of test rows left out at a time (jackknife)."""


@dataclass(frozen=True)
class ComparisonRow:
    """A setting or arm with its verdict against the reference, corrected for the number of comparisons.

    `differs` are the job keys in which the setting differs from the reference. `unpaired` are, in a
    comparison paired by seed, the seeds that only one of the two has.
    """

    setting: ComparedSetting
    verdict: Verdict
    differs: tuple[str, ...]
    unpaired: tuple[int, ...] = ()

    @property
    def answer(self) -> str:
        """The verdict's answer, in the words of its question: `better` or `worse` if not about heads."""
        question, answer = self.verdict.question, self.verdict.answer
        if question == "heads":
            return answer.value
        words = ("higher", "lower") if question == "values" else ("better", "worse")
        return dict(zip((Conclusion.HELPS, Conclusion.HURTS), words, strict=True)).get(answer, answer.value)


@dataclass(frozen=True)
class Comparison:
    """The verdicts on settings compared with `reference` in a metric.

    `mode` is max or min, or None for a metric with no better direction. `left_out` has the labels of the
    fitted baselines that were left out because they lack the metric. `other_draws` has the labels of the
    settings that earlier commands of the reference's sweep confirmed on other rows, as with fewer searches.
    """

    metric: str
    mode: str | None
    reference: ComparedSetting
    rows: tuple[ComparisonRow, ...]
    left_out: tuple[str, ...] = ()
    other_draws: tuple[str, ...] = ()


def compare_settings(
    settings: Sequence[ComparedSetting], metric: str = "", blocks_of: BlocksOf | None = None
) -> Comparison:
    """Compares all settings with the first one, with Holm's correction for several verdicts.

    Verdicts on heads against the control of their sweep form a family of their own, since a sweep is run to
    get them: neither family is corrected for the verdicts of the other. `metric` is a full name
    (`test/micro_f1`) or its last part, which is then tried with each of `PREFIXES`; the default is the first
    setting's score, on test.

    Where the user named a whole sweep, fitted baselines without the metric are left out. If the reference is
    of this sweep, settings that share no draw from the data with it are left out, too. `blocks_of`
    computes the metric without each block of test rows for runs that have not recorded it. Raises UserError
    for fewer than two settings, a metric that a setting lacks or that is not finite, different data, and
    where no two runs share their draws from the data.
    """
    settings = join_searches(settings)
    metric = metric or _goal(settings)
    known = [each for each in settings if _has(each, metric)]
    left_out = [each for each in settings if known and each not in known and each.optional and each.is_fitted]
    settings = [each for each in settings if each not in left_out]
    elsewhere = [each for each in settings if each.optional and _is_elsewhere(each, settings[0])]
    if len(elsewhere) < len(settings) - 1:  # otherwise the error below says which draws differ
        settings = [each for each in settings if each not in elsewhere]
    if len(settings) < 2:
        problem = "needs two settings or more" + (f" that have {metric}" if left_out else "")
        raise UserError(problem, key="WHAT", found=settings[0].label if settings else "none")
    name = _metric(settings, metric)
    settings = [_with_metric(each, name, blocks_of) for each in settings]
    mode = _mode(name, settings)
    reference, *others = settings
    pairs = [compare_pair(reference, other, name, mode or "max") for other in others]
    verdicts, rows = _verdicts(reference, others, pairs, name, mode), []
    for other, pair, verdict in zip(others, pairs, verdicts, strict=True):
        unpaired = tuple(sorted(set(reference.runs) ^ set(other.runs))) if pair.paired else ()
        rows.append(ComparisonRow(other, verdict, _differing(reference.job, other.job), unpaired))
    labels = (tuple(each.label for each in its) for its in (left_out, elsewhere))
    return Comparison(name, mode, reference, tuple(rows), *labels)


def _is_elsewhere(setting: ComparedSetting, reference: ComparedSetting) -> bool:
    return setting.sweep == reference.sweep and not shares_draws(reference, setting)


def _verdicts(
    reference: ComparedSetting,
    others: Sequence[ComparedSetting],
    pairs: Sequence[Difference],
    metric: str,
    mode: str | None,
) -> list[Verdict]:
    """Returns the verdicts on `others`, in order; heads against the control are a family of their own."""
    control = mode is not None and Role.CONTROL in reference.role
    asked = [
        control
        and only_treated_has_heads(reference.job, each.job)
        and each.sweep == reference.sweep
        and bool(each.searches)
        and Role.MODEL in each.role
        for each in others
    ]
    margin = margin_of(reference.job, metric) if mode else 0.0
    found: dict[int, Verdict] = {}
    for heads in (True, False):
        places = [place for place, each in enumerate(asked) if each == heads]
        question: Question = "heads" if heads else "settings" if mode else "values"
        own = [pairs[place] for place in places]
        better, rows = mode or "max", reference.rows
        family = compare_family(own, question, metric=metric, mode=better, margin=margin, rows=rows)
        found |= dict(zip(places, family, strict=True))
    return [found[place] for place in range(len(others))]


def _goal(settings: Sequence[ComparedSetting]) -> str:
    """Returns the first setting's score on test or, if a trained setting lacks it, the score's last part."""
    score = settings[0].score if settings else ""
    if not score:
        raise UserError("give a metric: the runs do not name a main one", key="--metric")
    tested = score.replace("val/", "test/")
    trained = [each for each in settings if not each.is_fitted] or settings
    return tested if all(tested in each.metrics for each in trained) else score.rpartition("/")[2]


def _mode(metric: str, settings: Sequence[ComparedSetting]) -> str | None:
    """Returns max or min for metrics of an evaluation, losses and seconds; None for a temperature and others.

    Runs record for which metrics lower is better; without such a record, the metric's declaration decides.
    """
    name = metric.rpartition("/")[2].removesuffix(HALF_SUFFIX)
    told = [its for setting in settings if (its := setting.lower_is_better) is not None]
    lower = name == "loss" or any(fnmatchcase(name, pattern) for its in told for pattern in its)
    if lower or metric.endswith("seconds"):
        return "min"
    first = settings[0]
    if first.mode and metric.rpartition("/")[2] == first.score.rpartition("/")[2]:
        return first.mode
    if any(f"/{split}/" in f"/{metric}" for split in ("val", "test")):
        return "max" if told else default_mode(metric)
    return None


def _names(metric: str) -> list[str]:
    place, slash, name = metric.rpartition("/")
    spellings = dict.fromkeys((metric, f"{place}{slash}{metric_name(name)}"))
    return [prefix + each for each in spellings for prefix in ("", *PREFIXES)]


def _has(setting: ComparedSetting, metric: str) -> bool:
    return any(_own_name(name, setting) in setting.metrics for name in _names(metric))


def _own_name(name: str, setting: ComparedSetting) -> str:
    """Returns the name of a metric in a setting: a fitted baseline has it only without the `knn` prefix."""
    return figure_name(name, setting.metrics) if setting.is_fitted else name


def _with_metric(setting: ComparedSetting, name: str, blocks_of: BlocksOf | None) -> ComparedSetting:
    """Returns the setting with the metric as `name`, also if a fitted baseline has another name for it.

    `blocks_of` computes the blocks of local runs that have not recorded them.
    """
    own, runs = _own_name(name, setting), {}
    for seed, run in setting.runs.items():
        blocks = dict(run.blocks)
        if blocks_of is not None and run.folder is not None and own not in blocks:
            blocks |= blocks_of(run.folder, [own])
        if own in blocks:
            blocks[name] = blocks[own]
        runs[seed] = replace(run, metrics={**run.metrics, name: run.metrics[own]}, blocks=blocks)
    return replace(setting, runs=runs)


def _metric(settings: Sequence[ComparedSetting], metric: str) -> str:
    for name in _names(metric):
        if all(_own_name(name, setting) in setting.metrics for setting in settings):
            return name
    shared = set.intersection(*(setting.metrics for setting in settings))
    problem, known = "no metric of this name that all have", sorted(shared)
    without = next((setting for setting in settings if not _has(setting, metric)), None)
    if without is not None:
        hint = did_you_mean(metric, sorted(without.metrics))
        problem = f"{without.label} has no such metric{hint}"
        known = [name for name in known if name.startswith(PREFIXES)]
    raise UserError(problem, key="--metric", found=metric, allowed=known)


def _differing(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the keys in which two jobs differ; of a section that one of them lacks, the section alone."""
    keys = {key for key, _ in set(a.items()) ^ set(b.items())} - {CLASSIFIER_WEIGHT}
    own = (key for key in keys if key.rpartition(".")[0] not in keys)
    return tuple(sorted({_section(key, a if key in b else b) for key in own}))


def _section(key: str, other: Mapping[str, str]) -> str:
    """Returns the outermost section of `key` that the job `other` lacks entirely, or the key itself."""
    parts = key.split(".")
    sections = (".".join(parts[:count]) for count in range(1, len(parts)))
    lacking = (each for each in sections if not any(f"{its}.".startswith(f"{each}.") for its in other))
    return next(lacking, key)
