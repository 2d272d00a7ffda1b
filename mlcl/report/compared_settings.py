"""What is compared: settings with their runs by seed, read from MLflow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mlflow.entities import Run

from mlcl.config import POSTHOC
from mlcl.report.runs import Runs, kind
from mlcl.tracking import State
from mlcl.tracking.names import LOG10, Tag

SEED, SPLIT_SEED = "train.seed", "data.split_seed"
SEEDS = re.compile(r"data\.(\w+\.seed|split_seed)")
"""Of what is drawn from the data: a split, a subset, wrong labels."""
AS_WRITTEN, FOUND = "as written", re.compile(r"trial \d+")
"""What a sweep calls the job that it was given, and what it found."""


@dataclass(frozen=True)
class Measured:
    """One run: its seed, the fingerprint of its data, its last metrics, the keys that match `SEEDS`."""

    run_id: str
    seed: int
    data: str
    metrics: Mapping[str, float]
    drawn: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """A setting, with its complete runs by seed. `word` is how it was asked for, `job` its keys."""

    label: str
    word: str
    runs: Mapping[int, Measured]
    job: Mapping[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> set[str]:
        """Metrics that all of its runs have."""
        return set.intersection(*(set(run.metrics) for run in self.runs.values()))


def settings_of(runs: Runs, sweep: Run, name: str) -> list[Contender]:
    """The settings that a sweep has confirmed: baselines and the job as written before what was found."""
    return [
        contender_of(label_of(group), f"{name}:{label_of(group)}", runs.children(group))
        for group in groups_of(runs, sweep)
    ]


def groups_of(runs: Runs, sweep: Run) -> list[Run]:
    """The runs that hold the seeds of a setting: baselines, the job as written, what was found.

    Each by their beginning: a baseline may come to a sweep that has confirmed others before.
    """
    held = filter(holds_seeds, runs.children(sweep))
    return sorted(held, key=lambda run: (_place(label_of(run)), int(run.info.start_time)))


def _place(label: str) -> int:
    return 2 if FOUND.match(label) else int(label == AS_WRITTEN)


def label_of(group: Run) -> str:
    """The setting whose seeds a run holds."""
    return str(group.data.tags.get(Tag.ID, group.info.run_name))


def cell_of(run: Run) -> str:
    """`ROW, COLUMN` of a table's run; empty for others."""
    return str(run.data.tags.get(Tag.CELL, "")).rpartition(", seed ")[0]


def alike(one: Run, other: Run, *, cell: bool = False) -> bool:
    """Whether two runs differ in nothing but the seed; `cell`: as runs of one cell do."""
    same_data = one.data.tags.get(Tag.FINGERPRINT) == other.data.tags.get(Tag.FINGERPRINT)
    return (
        one.info.experiment_id == other.info.experiment_id
        and (same_data or _drawn(one).get(SPLIT_SEED) != _drawn(other).get(SPLIT_SEED))
        and setting_of(one, cell=cell) == setting_of(other, cell=cell)
    )


def _drawn(run: Run) -> dict[str, str]:
    """The keys that seed what was drawn from the data."""
    return {key: text for key, text in run.data.params.items() if SEEDS.fullmatch(key)}


def holds_seeds(run: Run) -> bool:
    """Whether a run of kind confirmation is the one that holds the seeds."""
    return kind(run) == "confirmation" and "-seed" not in run.data.tags.get(Tag.KEY, "")


def setting_of(run: Run, *, cell: bool = False) -> dict[str, str]:
    """The job's keys but for the seed, and for those that each training of a sweep answers for itself.

    In a table (`cell`, or a run of that kind) each seed may make draws of its own from the data.
    """
    answered = POSTHOC if kind(run) in ("trial", "confirmation") else {}
    left_out = {SEED, *(key for key, grid in answered.items() if grid in run.data.params)}
    left_out |= _drawn(run).keys() if cell or kind(run) == "cell" else set()
    return {key: value for key, value in run.data.params.items() if key.removeprefix(LOG10) not in left_out}


def contender_of(label: str, word: str, runs: Iterable[Run], *, cell: bool = False) -> Contender:
    """Of the complete runs, the latest of each seed; `runs` come latest first."""
    found: dict[int, Measured] = {}
    job: dict[str, str] = {}
    for run in runs:
        tags = run.data.tags
        if tags.get(Tag.STATE) != State.COMPLETE or not tags.get(Tag.SEED, "").isdigit():
            continue
        seed, data = int(tags[Tag.SEED]), tags.get(Tag.FINGERPRINT, "")
        found.setdefault(seed, Measured(run.info.run_id, seed, data, dict(run.data.metrics), _drawn(run)))
        job = job or setting_of(run, cell=cell)
    return Contender(label, word, dict(sorted(found.items())), job)
