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
    check_same_data,
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
    metric = metric or _default_metric(settings)
    with_metric = [setting for setting in settings if _has_metric(setting, metric)]
    left_out = [
        setting
        for setting in settings
        if with_metric and setting not in with_metric and setting.optional and setting.is_fitted
    ]
    settings = [setting for setting in settings if setting not in left_out]
    other_draws = [
        setting for setting in settings if setting.optional and _is_elsewhere(setting, settings[0])
    ]
    if len(other_draws) < len(settings) - 1:  # otherwise the error below says which draws differ
        settings = [setting for setting in settings if setting not in other_draws]
    if len(settings) < 2:
        problem = "needs two settings or more" + (f" that have {metric}" if left_out else "")
        raise UserError(problem, key="WHAT", found=settings[0].label if settings else "none")
    name = _find_metric(settings, metric)
    settings = [_add_metric(setting, name, blocks_of) for setting in settings]
    mode = _metric_mode(name, settings)
    reference, *others = settings
    pairs = [compare_pair(reference, other, name, mode or "max") for other in others]
    verdicts, rows = _make_verdicts(reference, others, pairs, name, mode), []
    for other, pair, verdict in zip(others, pairs, verdicts, strict=True):
        unpaired = tuple(sorted(set(reference.runs) ^ set(other.runs))) if pair.paired else ()
        rows.append(ComparisonRow(other, verdict, _differing_keys(reference.job, other.job), unpaired))
    labels = (tuple(setting.label for setting in group) for group in (left_out, other_draws))
    return Comparison(name, mode, reference, tuple(rows), *labels)


def _is_elsewhere(setting: ComparedSetting, reference: ComparedSetting) -> bool:
    return setting.sweep == reference.sweep and not shares_draws(reference, setting)


def _make_verdicts(
    reference: ComparedSetting,
    others: Sequence[ComparedSetting],
    pairs: Sequence[Difference],
    metric: str,
    mode: str | None,
) -> list[Verdict]:
    """Returns the verdicts on `others`, in order; heads against the control are a family of their own."""
    control = mode is not None and Role.CONTROL in reference.role
    about_heads = [
        control
        and only_treated_has_heads(reference.job, setting.job)
        and setting.sweep == reference.sweep
        and bool(setting.searches)
        and Role.MODEL in setting.role
        for setting in others
    ]
    margin = margin_of(reference.job, metric) if mode else 0.0
    verdicts: dict[int, Verdict] = {}
    for heads in (True, False):
        indices = [index for index, flag in enumerate(about_heads) if flag == heads]
        question: Question = "heads" if heads else "settings" if mode else "values"
        members = [pairs[index] for index in indices]
        better, rows = mode or "max", reference.rows
        family = compare_family(members, question, metric=metric, mode=better, margin=margin, rows=rows)
        verdicts |= dict(zip(indices, family, strict=True))
    return [verdicts[index] for index in range(len(others))]


def _default_metric(settings: Sequence[ComparedSetting]) -> str:
    """Returns the first setting's score on test or, if a trained setting lacks it, the score's last part."""
    score = settings[0].score if settings else ""
    if not score:
        raise UserError("give a metric: the runs do not name a main one", key="--metric")
    name = score.replace("val/", "test/")
    trained = [setting for setting in settings if not setting.is_fitted] or settings
    return name if all(name in setting.metrics for setting in trained) else score.rpartition("/")[2]


def _metric_mode(metric: str, settings: Sequence[ComparedSetting]) -> str | None:
    """Returns max or min for metrics of an evaluation, losses and seconds; None for a temperature and others.

    Runs record for which metrics lower is better; without such a record, the metric's declaration decides.
    """
    name = metric.rpartition("/")[2].removesuffix(HALF_SUFFIX)
    pattern_sets = [patterns for setting in settings if (patterns := setting.lower_is_better) is not None]
    lower = name == "loss" or any(
        fnmatchcase(name, pattern) for patterns in pattern_sets for pattern in patterns
    )
    if lower or metric.endswith("seconds"):
        return "min"
    reference = settings[0]
    if reference.mode and metric.rpartition("/")[2] == reference.score.rpartition("/")[2]:
        return reference.mode
    if any(f"/{split}/" in f"/{metric}" for split in ("val", "test")):
        return "max" if pattern_sets else default_mode(metric)
    return None


def _possible_names(metric: str) -> list[str]:
    path, slash, name = metric.rpartition("/")
    spellings = dict.fromkeys((metric, f"{path}{slash}{metric_name(name)}"))
    return [prefix + spelling for spelling in spellings for prefix in ("", *PREFIXES)]


def _has_metric(setting: ComparedSetting, metric: str) -> bool:
    return any(_recorded_name(name, setting) in setting.metrics for name in _possible_names(metric))


def _recorded_name(name: str, setting: ComparedSetting) -> str:
    """Returns the name of a metric in a setting: a fitted baseline has it only without the `knn` prefix."""
    return figure_name(name, setting.metrics) if setting.is_fitted else name


def _add_metric(setting: ComparedSetting, name: str, blocks_of: BlocksOf | None) -> ComparedSetting:
    """Returns the setting with the metric as `name`, also if a fitted baseline has another name for it.

    `blocks_of` computes the blocks of local runs that have not recorded them.
    """
    recorded_name, runs = _recorded_name(name, setting), {}
    for seed, run in setting.runs.items():
        blocks = dict(run.blocks)
        if blocks_of is not None and run.folder is not None and recorded_name not in blocks:
            blocks |= blocks_of(run.folder, [recorded_name])
        if recorded_name in blocks:
            blocks[name] = blocks[recorded_name]
        runs[seed] = replace(run, metrics={**run.metrics, name: run.metrics[recorded_name]}, blocks=blocks)
    return replace(setting, runs=runs)


def _find_metric(settings: Sequence[ComparedSetting], metric: str) -> str:
    for name in _possible_names(metric):
        if all(_recorded_name(name, setting) in setting.metrics for setting in settings):
            return name
    for setting in settings[1:]:  # on other data a metric may be missing, and no other would compare
        check_same_data(settings[0], setting)
    shared_names = set.intersection(*(setting.metrics for setting in settings))
    problem, allowed = "no metric of this name that all have", sorted(shared_names)
    lacking_setting = next((setting for setting in settings if not _has_metric(setting, metric)), None)
    if lacking_setting is not None:
        hint = did_you_mean(metric, sorted(lacking_setting.metrics))
        problem = f"{lacking_setting.label} has no such metric{hint}"
        allowed = [name for name in allowed if name.startswith(PREFIXES)]
    raise UserError(problem, key="--metric", found=metric, allowed=allowed)


def _differing_keys(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the keys in which two jobs differ; of a section that one of them lacks, the section alone."""
    keys = {key for key, _ in set(a.items()) ^ set(b.items())} - {CLASSIFIER_WEIGHT}
    top_keys = (key for key in keys if key.rpartition(".")[0] not in keys)
    return tuple(sorted({_missing_section(key, a if key in b else b) for key in top_keys}))


def _missing_section(key: str, other: Mapping[str, str]) -> str:
    """Returns the outermost section of `key` that the job `other` lacks entirely, or the key itself."""
    parts = key.split(".")
    sections = (".".join(parts[:count]) for count in range(1, len(parts)))
    missing_sections = (
        section
        for section in sections
        if not any(f"{other_key}.".startswith(f"{section}.") for other_key in other)
    )
    return next(missing_sections, key)
