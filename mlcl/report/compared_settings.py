"""Settings with their runs by seed, as they are compared; read from MLflow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mlcl.config import POSTHOC
from mlcl.report.runs import Runs, kind
from mlcl.tracking import State, written
from mlcl.tracking.names import SWEEP_MODE, SWEEP_SCORE, Tag

if TYPE_CHECKING:
    from mlflow.entities import Run

SEED, SPLIT_SEED = "train.seed", "data.split_seed"
SEEDS = re.compile(r"data\.(\w+\.seed|split_seed)")
"""Keys that seed random draws from the data: the split, a subset, label noise."""
AS_WRITTEN, FOUND = "as written", re.compile(r"trial \d+")
"""Labels of a sweep's confirmed settings: its own job, and what its search found."""


@dataclass(frozen=True)
class SeedRun:
    """A run: its seed, the fingerprint of its `data`, its last metrics, and its keys that match `SEEDS`."""

    run_id: str
    seed: int
    data: str
    metrics: Mapping[str, float]
    data_seeds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparedSetting:
    """A setting with its complete runs by seed. `word` is how the user named it, `job` its keys.

    `lower_is_better` are patterns of metrics, None where no run says them. `names` of a sweep's setting are
    those that it has now, with " = " between them where it has several. `optional`: the user named its sweep.
    `score` is the figure on validation by which it was chosen, `mode` max or min where that is known.
    `plain`: of runs outside of sweeps and tables.
    """

    label: str
    word: str
    runs: Mapping[int, SeedRun]
    job: Mapping[str, str] = field(default_factory=dict)
    lower_is_better: frozenset[str] | None = None
    names: str = ""
    optional: bool = False
    score: str = ""
    mode: str = ""
    plain: bool = False

    @property
    def metrics(self) -> set[str]:
        """The metrics that all of its runs have."""
        return set.intersection(*(set(run.metrics) for run in self.runs.values()))


def confirmed_settings(runs: Runs, sweep: Run, name: str) -> list[ComparedSetting]:
    """The settings that a sweep has confirmed.

    Baselines that were trained, the job as written, those it found, baselines that were fitted.
    """
    found = [
        confirmed_setting(runs, group, f"{name}:{setting_label(group)}") for group in seed_groups(runs, sweep)
    ]
    asked = sweep.data.params
    return [replace(each, score=asked.get(SWEEP_SCORE, ""), mode=asked.get(SWEEP_MODE, "")) for each in found]


def confirmed_setting(runs: Runs, group: Run, word: str) -> ComparedSetting:
    """The setting whose seeds a run holds."""
    found = read_setting(setting_label(group), word, runs.children(group))
    return replace(found, names=group.data.tags.get(Tag.CANDIDATE, ""))


def seed_groups(runs: Runs, sweep: Run) -> list[Run]:
    """The runs that hold the seeds of a setting, in the order of `confirmed_settings`.

    Within each of the four kinds, the earliest comes first.
    """
    held = filter(is_seed_group, runs.children(sweep))
    return sorted(held, key=lambda run: (_place(run), int(run.info.start_time)))


def _place(group: Run) -> int:
    """Baselines that were trained come first: the first setting is the reference of comparisons."""
    label = setting_label(group)
    if "baseline" in group.data.params:
        return 3
    return 1 if label == AS_WRITTEN else 2 if FOUND.match(label) else 0


def setting_label(group: Run) -> str:
    """The label of the setting whose seeds a run holds."""
    return str(group.data.tags.get(Tag.ID, group.info.run_name))


def cell_label(run: Run) -> str:
    """`ROW, COLUMN` of a training of a table; empty for other runs."""
    return str(run.data.tags.get(Tag.CELL, "")).rpartition(", seed ")[0]


def same_setting(one: Run, other: Run, *, cell: bool = False) -> bool:
    """Whether two runs differ in their seeds alone; `cell`: they are of one cell, see `setting_keys`."""
    same_data = one.data.tags.get(Tag.FINGERPRINT) == other.data.tags.get(Tag.FINGERPRINT)
    return (
        one.info.experiment_id == other.info.experiment_id
        and (same_data or _data_seeds(one).get(SPLIT_SEED) != _data_seeds(other).get(SPLIT_SEED))
        and setting_keys(one, cell=cell) == setting_keys(other, cell=cell)
    )


def _data_seeds(run: Run) -> dict[str, str]:
    """A run's keys that match `SEEDS`."""
    return {key: text for key, text in run.data.params.items() if SEEDS.fullmatch(key)}


def is_seed_group(run: Run) -> bool:
    """Whether a run holds the seeds of a confirmed setting."""
    return kind(run) == "confirmation" and "-seed" not in run.data.tags.get(Tag.KEY, "")


def setting_keys(run: Run, *, cell: bool = False) -> dict[str, str]:
    """The job's keys that define the setting: all but the seed and a sweep's post-hoc keys.

    Trainings of a sweep choose the post-hoc keys one by one. For the trainings of a table's cell (`cell`, or
    a run of that kind) the seeds of draws from the data are left out too.
    """
    answered = POSTHOC if kind(run) in ("trial", "confirmation") else {}
    left_out = {SEED, *(key for key, grid in answered.items() if grid in run.data.params)}
    left_out |= _data_seeds(run).keys() if cell or kind(run) == "cell" else set()
    return {key: value for key, value in written(run.data.params).items() if key not in left_out}


def read_setting(label: str, word: str, runs: Iterable[Run], *, cell: bool = False) -> ComparedSetting:
    """A setting of the latest complete run of each seed; `runs` are ordered from the latest on."""
    found: dict[int, SeedRun] = {}
    job: dict[str, str] = {}
    lower: frozenset[str] | None = None
    score = ""
    for run in runs:
        tags = run.data.tags
        if tags.get(Tag.STATE) != State.COMPLETE or not tags.get(Tag.SEED, "").isdigit():
            continue
        seed, data = int(tags[Tag.SEED]), tags.get(Tag.FINGERPRINT, "")
        found.setdefault(seed, SeedRun(run.info.run_id, seed, data, dict(run.data.metrics), _data_seeds(run)))
        job = job or setting_keys(run, cell=cell)
        if Tag.LOWER_IS_BETTER in tags:
            lower = (lower or frozenset()) | frozenset(json.loads(tags[Tag.LOWER_IS_BETTER]))
        score = score or run.data.params.get("evaluation.metric", "")
    return ComparedSetting(label, word, dict(sorted(found.items())), job, lower, score=score)
