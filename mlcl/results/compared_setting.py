"""A setting that is compared, with its runs by seed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.config import MARGIN
from mlcl.significance.roles import Role

SEED, SPLIT_SEED, VALIDATION_SEED = "train.seed", "data.split_seed", "data.validation_seed"
SEEDS = re.compile(r"data\.(\w+\.seed|(split|validation)_seed)")
"""Keys that seed random draws from the data: the split, validation, a subset, label noise."""


@dataclass(frozen=True)
class SeedRun:
    """A run: its seed, the fingerprint of its `data`, its metrics, and its keys that match `SEEDS`.

    `blocks` are metrics of test without each block of its rows. `folder` has its files where it is local.
    """

    run_id: str
    seed: int
    data: str
    metrics: Mapping[str, float]
    data_seeds: Mapping[str, str] = field(default_factory=dict)
    blocks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    folder: Path | None = None


@dataclass(frozen=True)
class ComparedSetting:
    """A setting with its complete runs by seed.

    Attributes:
        label: The name for people.
        word: How the user named it.
        job: The keys of its job as text, without the seeds of training and of validation rows.
        lower_is_better: Patterns of metrics, None where no run says them.
        names: The names that a sweep's setting has now.
        optional: Whether the user named the whole sweep.
        score: The metric on validation by which it was chosen; `mode` is max or min where that is known.
        plain: Whether it is of runs outside of sweeps and tables.
        sweep: The name of its sweep, `arm` and `search` what found it there, and `role` its role.
        searches: Of a whole arm, the seeds of each search's pick; `picks` are the picks' labels.
        rows: The number of test rows, 0 where it is unknown.
        searched: Whether a search chose it.
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

    @property
    def metrics(self) -> set[str]:
        """The metrics that all of its runs have."""
        return set.intersection(*(set(run.metrics) for run in self.runs.values()))

    @property
    def is_fitted(self) -> bool:
        """Whether it is a baseline that is fitted, not trained: it has no embedding and no neighbours."""
        return "baseline" in self.job


def margin_of(job: Mapping[str, Any], metric: str) -> float:
    """The margin of the reference's job, for metrics of an evaluation but the loss; else 0."""
    evaluated = any(f"/{split}/" in f"/{metric}" for split in ("val", "test"))
    if not evaluated or metric.rpartition("/")[2] == "loss" or metric.endswith("seconds"):
        return 0.0
    return float(job.get("evaluation.margin", MARGIN))
