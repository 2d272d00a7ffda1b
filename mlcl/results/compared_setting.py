"""The dataclasses of a compared setting: a job without its seeds, with one complete run for each seed."""

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
"""Matches job keys that seed a random draw from the data: split, validation rows, subset or label noise."""


@dataclass(frozen=True)
class SeedRun:
    """A complete run of a setting.

    Attributes:
        data: The fingerprint of the data set with its split.
        data_seeds: The job keys that match `SEEDS`, with their values as text.
        blocks: For each test metric, its values with one block of test rows left out at a time (jackknife).
        folder: The folder with the run's files; None where it is not known to be on this machine.
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
        """The names of the metrics that all of its runs have."""
        return set.intersection(*(set(run.metrics) for run in self.runs.values()))

    @property
    def is_fitted(self) -> bool:
        """Whether the setting is a fitted baseline, which has no embeddings and thus no neighbours."""
        return "baseline" in self.job


def margin_of(job: Mapping[str, Any], metric: str) -> float:
    """Returns the difference in a metric that does not matter: `evaluation.margin` of the reference's job.

    Returns 0 for a loss, for seconds, and for metrics that are of neither the validation nor the test split.
    """
    evaluated = any(f"/{split}/" in f"/{metric}" for split in ("val", "test"))
    if not evaluated or metric.rpartition("/")[2] == "loss" or metric.endswith("seconds"):
        return 0.0
    return float(job.get("evaluation.margin", MARGIN))
