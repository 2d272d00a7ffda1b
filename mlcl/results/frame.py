"""Builds a tidy pandas frame of trainings: one row per training, one column per job key and per metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from mlcl.results.sweep_result import SweepResult
from mlcl.results.table_result import TableResult
from mlcl.results.training_result import TrainingResult
from mlcl.store import RESUMABLE

COSTS = ("seconds", "cpu_seconds", "gpu_seconds")
"""The columns with the time that a training took."""
COLUMNS = ("kind", "setting", "number", "seed", "state", "reason", "score", "run_id", "started", *COSTS)
"""The first columns of every frame."""


class LabelledTraining(NamedTuple):
    """A training with the `kind` and `setting` of its row, and the job parameters `shared` with others."""

    kind: str
    setting: str
    training: TrainingResult
    shared: Mapping[str, Any]


def frame_of(trainings: Iterable[LabelledTraining]) -> pd.DataFrame:
    """Returns a frame with one row for each training, in the order given.

    After `COLUMNS` come the dotted keys of the jobs, with numbers as numbers, then the last value of each
    metric. Missing values are NA in `number` and `seed`, None in `run_id`, NaN in other columns.
    """
    rows, param_names, metric_names = [], dict[str, None](), set[str]()
    for kind, setting, training, shared in trainings:
        params = training.params(shared)
        param_names |= dict.fromkeys(params)
        metric_names |= set(training.metrics)
        rows.append({**params, **training.metrics, **_training_row(kind, setting, training)})
    names = [*COLUMNS, *param_names, *sorted(metric_names - {"score"})]
    frame = pd.DataFrame(rows, columns=pd.Index(names))
    dtypes = {"number": "Int64", "seed": "Int64"} | dict.fromkeys(("score", *COSTS), "float64")
    ids = frame["run_id"].astype(object).where(frame["run_id"].notna(), None)
    started = pd.to_datetime(frame["started"], unit="ms", utc=True)
    return frame.astype(dtypes).assign(started=started, run_id=ids)


def _training_row(kind: str, setting: str, training: TrainingResult) -> dict[str, Any]:
    fields = ("number", "seed", "reason", "run_id", "started", *COSTS)
    score = None if training.state in RESUMABLE else training.score
    return {
        "kind": kind,
        "setting": setting,
        "state": str(training.state),
        "score": score,
        **{name: getattr(training, name) for name in fields},
    }


def sweep_trainings(sweep: SweepResult) -> dict[str, list[LabelledTraining]]:
    """Returns the trainings of a sweep, keyed by stage.

    `search` has the trials of the swept job, ordered by number; `dropped` those of its trials that do not fit
    the latest space; `baselines` the search trials of the control and the baselines; `races` the trainings
    that compared the best trials of a search on fresh seeds; `confirmation` the trainings of the confirmed
    settings, ordered by setting and seed.
    """
    stages = {
        "search": ("search", sweep.trials),
        "dropped": ("search", sweep.dropped),
        "baselines": ("baseline search", (*sweep.baseline_trials, *sweep.earlier_baseline_trials)),
        "races": ("race", sweep.race_trainings),
    }
    trainings = {
        stage: [LabelledTraining(kind, trial.label, trial, sweep.params) for trial in trials]
        for stage, (kind, trials) in stages.items()
    }
    seeds = ((setting, seed) for setting in sweep.settings for seed in setting.seeds)
    confirmations = [
        LabelledTraining("confirmation", setting.name, seed, setting.params) for setting, seed in seeds
    ]
    return trainings | {"confirmation": confirmations}


def sweep_frame(sweep: SweepResult) -> pd.DataFrame:
    """Returns a frame of a sweep's search trials, baseline search trials, races and confirmations."""
    stages = sweep_trainings(sweep)
    names = ("search", "baselines", "races", "confirmation")
    return frame_of([training for name in names for training in stages[name]])


def table_frame(table: TableResult) -> pd.DataFrame:
    """Returns a frame of the trainings of a table's cells, ordered by the time at which they started."""
    pairs = ((cell, training) for cell in table.cells for training in cell.trainings)
    rows = [LabelledTraining("cell", cell.label, training, cell.params) for cell, training in pairs]
    return frame_of(sorted(rows, key=lambda row: row.training.started or 0))
