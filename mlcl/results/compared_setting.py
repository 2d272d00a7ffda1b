"""A compared setting: a job without its seeds, with one complete run for each seed; and arms of settings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from mlcl.config import MARGIN
from mlcl.errors import UserError
from mlcl.significance.arms import Arm, Difference, Outcome, search_deviation
from mlcl.significance.paired_arms import differences_of
from mlcl.significance.roles import Role, figure_name, is_share

SEED, SPLIT_SEED, VALIDATION_SEED = "train.seed", "data.split_seed", "data.validation_seed"
SEEDS = re.compile(r"data\.(\w+\.seed|(split|validation)_seed)")
"""Matches job keys that seed a random draw from the data: split, validation rows, subset or label noise."""


@dataclass(frozen=True)
class SeedRun:
    """A complete run of a setting.

    `data` is the fingerprint of the data set with its split, `data_seeds` has the job keys that match
    `SEEDS`, with their values as text. `blocks` has, for each test metric, its values with one block of test
    rows left out at a time (jackknife). `folder` has the run's files; None where it is not known to be on
    this machine. `job_hash` is the hash of its job, empty if unknown.
    """

    run_id: str
    seed: int
    data: str
    metrics: Mapping[str, float]
    data_seeds: Mapping[str, str] = field(default_factory=dict)
    blocks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    folder: Path | None = None
    job_hash: str = ""


@dataclass(frozen=True)
class ComparedSetting:
    """A setting to compare, or a whole arm of a sweep, with its complete runs keyed by their seed.

    Attributes:
        label: The name that is shown to the user.
        word: The command-line word by which the user named it.
        runs: The complete runs of the setting, keyed by their training seed.
        job: The setting's job as dotted keys with values as text, without the seeds of training and of
            validation rows.
        lower_is_better: Patterns of the metrics for which lower is better; None if no run recorded them.
        names: The present names of a sweep's setting, which include its rank, such as `best found`.
        optional: Whether the user named the whole sweep and not this setting.
        score: The validation metric by which the setting was chosen; `mode` is max or min, empty if unknown.
        plain: Whether the runs belong to no sweep and no table.
        sweep: The name of the sweep that has the setting.
        arm: The arm of the sweep that found the setting; `search` is the number of the search within the arm.
        role: The role of the setting in the sweep: model, baseline or control.
        searches: For a whole arm, the seeds of the setting that each search picked; else empty.
        picks: For a whole arm, the labels of the settings that its searches picked.
        rows: The number of test rows, 0 if unknown.
        searched: Whether a search chose the hyperparameters.
        method: Whether it stands for any setting that its search may find, as an arm or a tuned cell does,
            and not only for the setting that was found.
    """

    label: str
    word: str
    runs: Mapping[int, SeedRun]
    job: Mapping[str, str] = field(default_factory=dict)
    lower_is_better: frozenset[str] | None = None
    names: tuple[str, ...] = ()
    optional: bool = False
    score: str = ""
    mode: str = ""
    plain: bool = False
    sweep: str = ""
    arm: str = ""
    search: int = 1
    role: Role = Role.MODEL
    searches: tuple[tuple[int, ...], ...] = ()
    picks: tuple[str, ...] = ()
    rows: int = 0
    searched: bool = True
    method: bool = False

    @property
    def metrics(self) -> set[str]:
        """The names of the metrics that all of its runs have."""
        return set.intersection(*(set(run.metrics) for run in self.runs.values()))

    @property
    def is_fitted(self) -> bool:
        """Whether the setting is a fitted baseline, which has no embeddings and thus no neighbours."""
        return self.job.get("baseline") is not None


def margin_of(job: Mapping[str, Any], metric: str) -> float:
    """Returns the largest difference in a metric that does not matter: `evaluation.margin` of the job `job`.

    Returns 0 for metrics that are no shares, such as losses and seconds; see `is_share`.
    """
    return float(job.get("evaluation.margin", MARGIN)) if is_share(metric) else 0.0


def join_searches(settings: Sequence[ComparedSetting]) -> list[ComparedSetting]:
    """Joins the picks of each arm's searches to one setting, where the user named the whole sweep.

    If a search has several settings, the best on validation is its pick, as in the sweep's verdicts, and the
    other settings stay separate. An arm that is joined already is not changed. If the user named a
    whole sweep, its joined control is returned first, then other settings of the control.
    """
    groups: dict[tuple[str, str], dict[int, list[ComparedSetting]]] = {}
    whole = {(each.sweep, each.arm) for each in settings if each.optional and each.searches}
    for each in settings:
        if each.optional and each.arm and (each.sweep, each.arm) not in whole:
            groups.setdefault((each.sweep, each.arm), {}).setdefault(each.search, []).append(each)
    picks = {key: [max(its, key=_validation) for _, its in sorted(groups[key].items())] for key in groups}
    joined = [_joined(arm, its) for (_, arm), its in picks.items()]
    counted = {id(each) for its in picks.values() for each in its}
    rest = [each for each in settings if id(each) not in counted]
    first = settings.index(next(iter(picks.values()))[0]) if picks else 0
    found = [*rest[:first], *joined, *rest[first:]]
    words = groupby(found, key=lambda each: (each.sweep, each.optional))
    return [each for _, its in words for each in sorted(its, key=_place)]


def _place(setting: ComparedSetting) -> int:
    """Returns 0 for the joined control of a named sweep, 1 for its other settings of the control, else 2."""
    if not setting.optional or Role.CONTROL not in setting.role:
        return 2
    return 0 if setting.searches else 1


def _validation(setting: ComparedSetting) -> float:
    """Returns the mean score on validation, negated where lower is better; -inf if a run has none."""
    sign, runs = -1.0 if setting.mode == "min" else 1.0, setting.runs.values()
    scores = [run.metrics.get(figure_name(setting.score, run.metrics), math.nan) for run in runs]
    return fmean(sign * score if math.isfinite(score) else -math.inf for score in scores)


def _joined(arm: str, picks: Sequence[ComparedSetting]) -> ComparedSetting:
    """Returns the arm as one setting, with all runs of its picks and the job keys in which they agree."""
    shared = set.intersection(*(set(each.job.items()) for each in picks))
    return replace(
        picks[0],
        label=arm,
        word=f"{picks[0].sweep}:{arm}",
        runs={seed: run for each in picks for seed, run in each.runs.items()},
        searches=tuple(seeds for each in picks for seeds in each.searches or (tuple(each.runs),)),
        picks=tuple(name for each in picks for name in each.picks or (each.label,) if name != arm),
        job=dict(item for item in picks[0].job.items() if item in shared),
        names=(),
        method=True,
    )


def compare_pair(reference: ComparedSetting, other: ComparedSetting, metric: str, mode: str) -> Difference:
    """Returns the difference of two settings or arms in a metric, with its variances.

    Where each seed draws its own rows from the data, runs of equal seeds are paired: their outcomes are
    subtracted first. Raises UserError where the data differs, no seed is shared, or a value is not finite.
    """
    both = (reference, other)
    pairs = all(map(_draw_by_seed, both))
    shared = reference.runs.keys() & other.runs.keys()
    if pairs and not shared:
        seeds = "; ".join(f"{each.label}: seeds {' '.join(map(str, each.runs))}" for each in both)
        raise UserError("these settings share no seed, and cannot be paired", key="WHAT", found=seeds)
    _check_data(reference, other)
    odd = [
        f"{each.label}, seed {seed}: {run.metrics[metric]}"
        for each in both
        for seed, run in each.runs.items()
        if not math.isfinite(run.metrics[metric]) and (seed in shared or not pairs)
    ]
    if odd:  # without such seeds the setting that failed there would look better
        raise UserError(f"{metric} is not a number in some runs", key="--metric", found=odd)
    (found,) = differences_of(_arm(reference, metric), [_arm(other, metric)], metric, mode, seeds=pairs)
    return found


def _arm(setting: ComparedSetting, metric: str) -> Arm:
    """Returns the setting's runs as an arm, by search; a fitted baseline of equal values has one outcome."""
    own_rows = len({run.data_seeds.get(SPLIT_SEED) for run in setting.runs.values()}) > 1
    outcomes = {}
    for seed, run in setting.runs.items():
        blocks = () if own_rows else tuple(run.blocks.get(metric, ()))
        outcomes[seed] = Outcome(run.seed, run.metrics[metric], blocks, run.job_hash)
    searches = tuple(
        tuple(outcomes[seed] for seed in seeds) for seeds in setting.searches or (tuple(setting.runs),)
    )
    fixed = setting.is_fitted and len({each.value for its in searches for each in its}) == 1
    counted = ((searches[0][0],),) if fixed else searches
    deviation = search_deviation(metric) if setting.method else 0.0
    return Arm(setting.label, counted, fixed, setting.searched, deviation)


def _draws(run: SeedRun) -> tuple[tuple[str, str], ...]:
    """Returns the (job key, seed) pairs of a run's draws from the data, except the seed of the split."""
    return tuple(sorted((key, seed) for key, seed in run.data_seeds.items() if key != SPLIT_SEED))


def _draw_by_seed(setting: ComparedSetting) -> bool:
    """Whether the runs of a setting differ in a seed of data sampling other than `data.validation_seed`."""
    drawn = ({**run.data_seeds, VALIDATION_SEED: ""} for run in setting.runs.values())
    return len({tuple(sorted(each.items())) for each in drawn}) > 1


def shares_draws(a: ComparedSetting, b: ComparedSetting) -> bool:
    """Whether a run of each setting drew from the data with the same seeds, except that of the split."""
    one, other = ({_draws(run) for run in each.runs.values()} for each in (a, b))
    return bool(one & other)


def _check_data(a: ComparedSetting, b: ComparedSetting) -> None:
    """Raises UserError unless runs of both settings drew from the data with equal seeds and got equal data.

    Where each seed has its own split, the runs of each shared seed must have the same draws and data.
    """
    one, other = ({_draws(run): run for run in each.runs.values()} for each in (a, b))
    both = [(a.runs[seed], b.runs[seed]) for seed in sorted(a.runs.keys() & b.runs.keys())]
    alike = [pair for pair in both if _draws(pair[0]) == _draws(pair[1])]
    clash = [pair for pair in both if pair not in alike]
    if not shares_draws(a, b) or (clash and _draw_by_seed(a)):
        runs = clash[0] if clash else [next(iter(each.runs.values())) for each in (a, b)]
        first, second = (dict(_draws(run)) for run in runs)
        key = next(each for each in sorted({*first, *second}) if first.get(each) != second.get(each))
        problem = "these settings drew from the data with different seeds, and cannot be compared"
        found = f"{a.label} {first.get(key, 'none')}, {b.label} {second.get(key, 'none')}"
        raise UserError(problem, key=key, found=found)
    if not all(map(_draw_by_seed, (a, b))):
        alike += [(one[draws], other[draws]) for draws in one.keys() & other.keys()]
    for one_run, other_run in alike:
        if one_run.data != other_run.data:
            found = f"{a.label} {one_run.data}, {b.label} {other_run.data}"
            problem = "these settings were trained on different data"
            allowed = "one data set with one split (the same fingerprint)"
            raise UserError(problem, key="WHAT", found=found, allowed=allowed)
