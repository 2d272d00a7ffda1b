"""Compares settings by a metric, paired over the seeds that they share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from mlcl.config import default_mode
from mlcl.config.section import metric_name
from mlcl.config.space.search import HALF_SUFFIX
from mlcl.errors import UserError, did_you_mean
from mlcl.results.settings import SPLIT_SEED, ComparedSetting
from mlcl.significance.baseline_verdict import figure_name
from mlcl.significance.paired_tests import LEVEL, Paired, compare_paired, holm
from mlcl.tracking.names import CLASSIFIER_WEIGHT

PREFIXES = ("test/", "knn_best/test/", "val/", "knn_best/val/")
"""Prefixes that are tried, in this order, for a metric without one."""
NEIGHBOURS = ("knn/", "knn_best/")
"""Prefixes of the metrics with neighbours."""


@dataclass(frozen=True)
class ComparisonRow:
    """A setting compared with the reference.

    `seeds` have runs of both, `unpaired` runs of one alone. `p` is corrected by Holm's method; None: not
    tested, for both are fitted and have the same value with every seed. `further`: how many more seeds would
    decide, None where that is unknown. `differs`: the keys in which they differ. `better` is None where
    nothing is decided; for a metric without a `mode` it says whether it is higher.
    """

    setting: ComparedSetting
    seeds: tuple[int, ...]
    unpaired: tuple[int, ...]
    paired: Paired
    p: float | None
    further: int | None
    differs: tuple[str, ...]
    better: bool | None
    mode: str | None

    @property
    def verdict(self) -> str:
        """`better`, `worse`, `undecided` or `not tested`; `higher` or `lower` where `mode` is None."""
        if self.better is None:
            return "not tested" if self.p is None else "undecided"
        yes, no = ("better", "worse") if self.mode else ("higher", "lower")
        return yes if self.better else no


@dataclass(frozen=True)
class Comparison:
    """Settings compared with `reference` by a metric; `mode`: max, min, or None where neither is better.

    `left_out` are the labels of fitted baselines that have no such metric.
    """

    metric: str
    mode: str | None
    reference: ComparedSetting
    rows: tuple[ComparisonRow, ...]
    left_out: tuple[str, ...] = ()


def compare_settings(settings: Sequence[ComparedSetting], metric: str = "") -> Comparison:
    """Compares all settings with the first one by paired tests, with Holm's correction over the tests.

    `metric` is a full name (`test/micro_f1`) or its last part, which is then tried with each of `PREFIXES`;
    without one, the first setting's score, on test.
    Fitted baselines that have no such metric are left out where the user named a whole sweep.
    Raises UserError for fewer than two settings, a metric that not all have or that is not finite, different
    data, and settings that share no seed.

    Example:
        >>> found = compare_settings(find_settings(runs, ["my-sweep"]), "accuracy")
        >>> [(row.setting.label, row.verdict) for row in found.rows]
        [('trial 3', 'better')]
    """
    metric = metric or _goal(settings)
    known = [each for each in settings if _has(each, metric)]
    left_out = [each for each in settings if known and each not in known and each.optional and each.is_fitted]
    settings = [each for each in settings if each not in left_out]
    if len(settings) < 2:
        problem = "needs two settings or more" + (f" that have {metric}" if left_out else "")
        raise UserError(problem, key="WHAT", found=settings[0].label if settings else "none")
    name = _metric(settings, metric)
    settings = [_under(name, each) for each in settings]
    mode = _mode(name, settings)
    reference, *others = settings
    pairs = [_pair(reference, other, name) for other in others]
    fixed = _is_fixed(reference, name)
    tested = [not (fixed and _is_fixed(other, name)) for other in others]
    adjusted = iter(holm([paired.p for (_, paired), tests in zip(pairs, tested, strict=True) if tests]))
    ps = [next(adjusted) if tests else None for tests in tested]
    rows = tuple(
        ComparisonRow(
            setting=other,
            seeds=seeds,
            unpaired=tuple(sorted(set(reference.runs) ^ set(other.runs))),
            paired=paired,
            p=p,
            further=None if p is None else paired.further_seeds(sum(tested)),
            differs=_differing(reference.job, other.job),
            better=None if p is None or p > 1 - LEVEL else (paired.difference > 0) == (mode != "min"),
            mode=mode,
        )
        for other, (seeds, paired), p in zip(others, pairs, ps, strict=True)
    )
    return Comparison(name, mode, reference, rows, tuple(each.label for each in left_out))


def _goal(settings: Sequence[ComparedSetting]) -> str:
    """The first setting's score, on test where every trained setting has that."""
    score = settings[0].score if settings else ""
    if not score:
        raise UserError("name a metric: the runs do not say which one counts", key="--metric")
    tested = score.replace("val/", "test/")
    trained = [each for each in settings if not each.is_fitted] or settings
    return tested if all(tested in each.metrics for each in trained) else score.rpartition("/")[2]


def _is_fixed(setting: ComparedSetting, metric: str) -> bool:
    """Whether a fitted setting has one value with all seeds: between two such settings seeds test nothing."""
    return setting.is_fitted and len({run.metrics[metric] for run in setting.runs.values()}) == 1


def _mode(metric: str, settings: Sequence[ComparedSetting]) -> str | None:
    """max or min for metrics of an evaluation, losses and seconds; None for others, as a temperature or k.

    The runs say it; where an earlier version made them, the metrics' declarations do.
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
    """The name of a metric in a setting: a fitted baseline has it without neighbours alone."""
    return figure_name(name, setting.metrics) if setting.is_fitted else name


def _under(name: str, setting: ComparedSetting) -> ComparedSetting:
    """The setting with its metric under this name."""
    own = _own_name(name, setting)
    if own == name:
        return setting
    runs = {
        seed: replace(run, metrics={**run.metrics, name: run.metrics[own]})
        for seed, run in setting.runs.items()
    }
    return replace(setting, runs=runs)


def _metric(settings: Sequence[ComparedSetting], metric: str) -> str:
    for name in _names(metric):
        if all(_own_name(name, setting) in setting.metrics for setting in settings):
            return name
    shared = set.intersection(*(setting.metrics for setting in settings))
    for setting in settings:
        if not _has(setting, metric):
            hint = did_you_mean(metric, sorted(setting.metrics))
            known = sorted(name for name in shared if name.startswith(PREFIXES))
            raise UserError(
                f"{setting.label} has no such metric{hint}", key="--metric", found=metric, allowed=known
            )
    raise UserError(
        "no metric of this name that all have", key="--metric", found=metric, allowed=sorted(shared)
    )


def _pair(a: ComparedSetting, b: ComparedSetting, metric: str) -> tuple[tuple[int, ...], Paired]:
    seeds = tuple(sorted(set(a.runs) & set(b.runs)))
    if not seeds:
        raise UserError(
            "these settings share no seed, and cannot be paired",
            key="WHAT",
            found="; ".join(f"{each.label}: seeds {' '.join(map(str, each.runs))}" for each in (a, b)),
        )
    for seed in seeds:
        _check_pair(seed, a, b)
    values = [[setting.runs[seed].metrics[metric] for seed in seeds] for setting in (a, b)]
    odd = [
        f"{setting.label}, seed {seed}: {value}"
        for setting, its in zip((a, b), values, strict=True)
        for seed, value in zip(seeds, its, strict=True)
        if not math.isfinite(value)
    ]
    if odd:  # without such seeds the setting that failed there would look better
        raise UserError(f"{metric} is no number in some runs", key="--metric", found=odd)
    return seeds, compare_paired(*values)


def _check_pair(seed: int, a: ComparedSetting, b: ComparedSetting) -> None:
    one, other = a.runs[seed], b.runs[seed]
    if one.data != other.data:
        raise UserError(
            "these settings were trained on different data",
            key="WHAT",
            found=f"seed {seed}: {a.label} {one.data}, {b.label} {other.data}",
            allowed="one data set with one split (the same fingerprint)",
        )
    # The split's seed is left out: the fingerprint covers it.
    for key in sorted((one.data_seeds.keys() & other.data_seeds.keys()) - {SPLIT_SEED}):
        if one.data_seeds[key] != other.data_seeds[key]:
            raise UserError(
                "these settings drew from the data with different seeds, and cannot be paired",
                key=key,
                found=f"seed {seed}: {a.label} {one.data_seeds[key]}, {b.label} {other.data_seeds[key]}",
            )


def _differing(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[str, ...]:
    """The keys in which two jobs differ, without the items of a list.

    A section that one job lacks is given in place of its keys.
    """
    keys = {key for key, _ in set(a.items()) ^ set(b.items())} - {CLASSIFIER_WEIGHT}
    own = (key for key in keys if key.rpartition(".")[0] not in keys)
    return tuple(sorted({_section(key, a if key in b else b) for key in own}))


def _section(key: str, other: Mapping[str, str]) -> str:
    """The outermost section of a key that the other job lacks, or the key itself."""
    parts = key.split(".")
    sections = (".".join(parts[:count]) for count in range(1, len(parts)))
    return next(
        (each for each in sections if not any(f"{its}.".startswith(f"{each}.") for its in other)), key
    )
