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
    joined_arms = {
        (setting.sweep, setting.arm) for setting in settings if setting.optional and setting.searches
    }
    for setting in settings:
        if setting.optional and setting.arm and (setting.sweep, setting.arm) not in joined_arms:
            groups.setdefault((setting.sweep, setting.arm), {}).setdefault(setting.search, []).append(setting)
    picks = {
        key: [max(group, key=_validation_score) for _, group in sorted(groups[key].items())] for key in groups
    }
    joined = [_join_picks(arm, arm_picks) for (_, arm), arm_picks in picks.items()]
    pick_ids = {id(pick) for arm_picks in picks.values() for pick in arm_picks}
    rest = [setting for setting in settings if id(setting) not in pick_ids]
    position = settings.index(next(iter(picks.values()))[0]) if picks else 0
    merged = [*rest[:position], *joined, *rest[position:]]
    words = groupby(merged, key=lambda setting: (setting.sweep, setting.optional))
    return [setting for _, word_settings in words for setting in sorted(word_settings, key=_control_rank)]


def _control_rank(setting: ComparedSetting) -> int:
    """Returns 0 for the joined control of a named sweep, 1 for its other settings of the control, else 2."""
    if not setting.optional or Role.CONTROL not in setting.role:
        return 2
    return 0 if setting.searches else 1


def _validation_score(setting: ComparedSetting) -> float:
    """Returns the mean score on validation, negated where lower is better; -inf if a run has none."""
    sign, runs = -1.0 if setting.mode == "min" else 1.0, setting.runs.values()
    scores = [run.metrics.get(figure_name(setting.score, run.metrics), math.nan) for run in runs]
    return fmean(sign * score if math.isfinite(score) else -math.inf for score in scores)


def _join_picks(arm: str, picks: Sequence[ComparedSetting]) -> ComparedSetting:
    """Returns the arm as one setting, with all runs of its picks and the job keys in which they agree."""
    shared = set.intersection(*(set(pick.job.items()) for pick in picks))
    return replace(
        picks[0],
        label=arm,
        word=f"{picks[0].sweep}:{arm}",
        runs={seed: run for pick in picks for seed, run in pick.runs.items()},
        searches=tuple(seeds for pick in picks for seeds in pick.searches or (tuple(pick.runs),)),
        picks=tuple(name for pick in picks for name in pick.picks or (pick.label,) if name != arm),
        job=dict(item for item in picks[0].job.items() if item in shared),
        names=(),
        method=True,
    )


def compare_pair(reference: ComparedSetting, other: ComparedSetting, metric: str, mode: str) -> Difference:
    """Returns the difference of two settings or arms in a metric, with its variances.

    Where each seed draws its own rows from the data, runs of equal seeds are paired: their outcomes are
    subtracted first. Raises UserError where the data differs, no seed is shared, or a value is not finite.
    """
    settings = (reference, other)
    paired = all(map(_has_seeded_draws, settings))
    shared_seeds = reference.runs.keys() & other.runs.keys()
    if paired and not shared_seeds:
        seeds = "; ".join(
            f"{setting.label}: seeds {' '.join(map(str, setting.runs))}" for setting in settings
        )
        raise UserError("these settings share no seed, and cannot be paired", key="WHAT", found=seeds)
    check_same_data(reference, other)
    bad_runs = [
        f"{setting.label}, seed {seed}: {run.metrics[metric]}"
        for setting in settings
        for seed, run in setting.runs.items()
        if not math.isfinite(run.metrics[metric]) and (seed in shared_seeds or not paired)
    ]
    if bad_runs:  # without such seeds the setting that failed there would look better
        raise UserError(f"{metric} is not a number in some runs", key="--metric", found=bad_runs)
    (difference,) = differences_of(
        _to_arm(reference, metric), [_to_arm(other, metric)], metric, mode, seeds=paired
    )
    return difference


def _to_arm(setting: ComparedSetting, metric: str) -> Arm:
    """Returns the setting's runs as an arm, by search; a fitted baseline of equal values has one outcome."""
    splits_differ = len({run.data_seeds.get(SPLIT_SEED) for run in setting.runs.values()}) > 1
    outcomes = {}
    for seed, run in setting.runs.items():
        blocks = () if splits_differ else tuple(run.blocks.get(metric, ()))
        outcomes[seed] = Outcome(run.seed, run.metrics[metric], blocks, run.job_hash)
    searches = tuple(
        tuple(outcomes[seed] for seed in seeds) for seeds in setting.searches or (tuple(setting.runs),)
    )
    fixed = setting.is_fitted and len({outcome.value for search in searches for outcome in search}) == 1
    arm_searches = ((searches[0][0],),) if fixed else searches
    deviation = search_deviation(metric) if setting.method else 0.0
    return Arm(setting.label, arm_searches, fixed, setting.searched, deviation)


def _data_draws(run: SeedRun) -> tuple[tuple[str, str], ...]:
    """Returns the (job key, seed) pairs of a run's draws from the data, except the seed of the split."""
    return tuple(sorted((key, seed) for key, seed in run.data_seeds.items() if key != SPLIT_SEED))


def _has_seeded_draws(setting: ComparedSetting) -> bool:
    """Whether the runs of a setting differ in a seed of data sampling other than `data.validation_seed`."""
    data_seeds = ({**run.data_seeds, VALIDATION_SEED: ""} for run in setting.runs.values())
    return len({tuple(sorted(seeds.items())) for seeds in data_seeds}) > 1


def shares_draws(a: ComparedSetting, b: ComparedSetting) -> bool:
    """Whether a run of each setting drew from the data with the same seeds, except that of the split."""
    draws_a, draws_b = ({_data_draws(run) for run in setting.runs.values()} for setting in (a, b))
    return bool(draws_a & draws_b)


def check_same_data(a: ComparedSetting, b: ComparedSetting) -> None:
    """Raises UserError unless runs of both settings drew from the data with equal seeds and got equal data.

    Where each seed has its own split, the runs of each shared seed must have the same draws and data.
    """
    runs_a, runs_b = ({_data_draws(run): run for run in setting.runs.values()} for setting in (a, b))
    pairs = [(a.runs[seed], b.runs[seed]) for seed in sorted(a.runs.keys() & b.runs.keys())]
    same_draws = [pair for pair in pairs if _data_draws(pair[0]) == _data_draws(pair[1])]
    clashes = [pair for pair in pairs if pair not in same_draws]
    if not shares_draws(a, b) or (clashes and _has_seeded_draws(a)):
        runs = clashes[0] if clashes else [next(iter(setting.runs.values())) for setting in (a, b)]
        draws_a, draws_b = (dict(_data_draws(run)) for run in runs)
        key = next(key for key in sorted({*draws_a, *draws_b}) if draws_a.get(key) != draws_b.get(key))
        problem = "these settings drew from the data with different seeds, and cannot be compared"
        values = f"{a.label} {draws_a.get(key, 'none')}, {b.label} {draws_b.get(key, 'none')}"
        raise UserError(problem, key=key, found=values)
    if not all(map(_has_seeded_draws, (a, b))):
        same_draws += [(runs_a[draws], runs_b[draws]) for draws in runs_a.keys() & runs_b.keys()]
    for one_run, other_run in same_draws:
        if one_run.data != other_run.data:
            values = f"{a.label} {one_run.data}, {b.label} {other_run.data}"
            problem = "these settings were trained on different data"
            allowed = "one data set with one split (the same fingerprint)"
            raise UserError(problem, key="WHAT", found=values, allowed=allowed)
