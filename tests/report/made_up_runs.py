"""An MLflow store of runs, sweeps and tables with made-up metrics, for tests of the code that reads it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from mlflow.entities import Metric, Param, RunTag

from mlcl.config import Goal
from mlcl.results.cell_result import CellResult, FigureResult
from mlcl.results.compared_setting import ComparedSetting, SeedRun
from mlcl.results.documents import document
from mlcl.results.sweep_result import SweepResult
from mlcl.results.table_result import TableResult
from mlcl.results.training_result import SettingResult, TrainingResult
from mlcl.significance.roles import Role
from mlcl.tracking import State, Tracker
from mlcl.tracking.names import SWEEP_JSON, TABLE_JSON

_clock = itertools.count(1_700_000_000_000, 1000)


def made_up_setting(
    label: str,
    values: Mapping[int, float | Mapping[str, float]],
    job: Mapping[str, str] | None = None,
    *,
    data: str = "data1",
    seeds: Mapping[str, str] | None = None,
    **fields: object,
) -> ComparedSetting:
    """Returns a setting with test/accuracy or all metrics by seed; `seeds` are the seeds of the data."""
    runs = {}
    for seed, value in values.items():
        metrics = value if isinstance(value, Mapping) else {"test/accuracy": value}
        runs[seed] = SeedRun(f"{label}-{seed}", seed, data, metrics, seeds or {})
    return ComparedSetting(label, label, runs, job or {"lr": label}, **fields)


class Store:
    """A tracking store, to which runs are added as mlcl leaves them."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.client = tracker, tracker.client

    def add(
        self,
        experiment: str,
        kind: str = "",
        *,
        name: str = "run",
        seed: int | None = None,
        state: str = "COMPLETE",
        metrics: Mapping[str, float] | None = None,
        params: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
        parent: str | None = None,
        data: str = "data1",
    ) -> str:
        """Adds a run and returns its id; each run starts a second after the one before."""
        run_tags = {"mlcl.state": state, "mlcl.data": "made up", "mlcl.data_fingerprint": data}
        run_tags |= {"mlflow.runName": name, **(tags or {})}
        run_tags |= {"mlcl.kind": kind} if kind else {}
        run_tags |= {"mlcl.seed": str(seed)} if seed is not None else {}
        run_tags |= {"mlflow.parentRunId": parent} if parent else {}
        start_time = next(_clock)
        run = self.client.create_run(self.tracker.experiment(experiment), start_time=start_time)
        id = str(run.info.run_id)
        keys = dict(params or {}) | ({"train.seed": seed} if seed is not None else {})
        self.client.log_batch(
            id,
            [Metric(metric, value, start_time, 0) for metric, value in (metrics or {}).items()],
            [Param(key, str(value)) for key, value in keys.items()],
            [RunTag(tag, value) for tag, value in run_tags.items()],
        )
        return id

    def setting(self, experiment: str, figures: Mapping[int, float], **how) -> list[str]:
        """Adds plain runs of one setting, with test/accuracy by seed; returns their ids."""
        return [
            self.add(experiment, seed=seed, metrics={"test/accuracy": value}, **how)
            for seed, value in figures.items()
        ]

    def sweep(
        self,
        name: str,
        settings: Mapping[str, Mapping[int, float | Mapping[str, float]]],
        *,
        baselines: Collection[str] = (),
        fitted: Collection[str] = (),
        score: str = "val/accuracy",
    ) -> str:
        """Adds a sweep of settings on fresh seeds, with test/accuracy or all metrics by name and seed."""
        id = f"id-of-{name}"
        tags = {"mlcl.name": name, "mlcl.id": id, "mlcl.log": id}
        sweep, results = self.add("sweeps", "sweep", name=name, tags=tags), []
        for order, (label, seed_values) in enumerate(settings.items()):
            log = f"{id}.confirm-{order}"
            setting_tags = {"mlcl.log": log, "mlcl.owner": id}
            parent = self.add("sweeps", "confirmation", name=label, parent=sweep, tags=setting_tags)
            seeds = tuple(self._seed(label, log, parent, *item) for item in seed_values.items())
            role = Role.BASELINE if label in baselines or label in fitted else Role.MODEL
            params = {"baseline": label} if label in fitted else {"lr": label}
            setting = SettingResult(
                log, (label,), State.COMPLETE, {}, seeds, label, role, order, params, log=log
            )
            results.append(setting)
        result = SweepResult(
            id, name, State.COMPLETE, "", Path(), (Goal(score, "max"),), score, "max", (), tuple(results),
            lower_is_better=("hamming_loss",),
        )  # fmt: skip
        self.store(sweep, result)
        return sweep

    def _seed(
        self, label: str, group: str, parent: str, seed: int, its: float | Mapping[str, float]
    ) -> TrainingResult:
        metrics, log = its, f"{group}-seed{seed}"
        if not isinstance(its, Mapping):
            metrics = {"test/accuracy": its, "val/accuracy": its + 0.1, "test/hamming_loss": 1 - its}
        tags, name = {"mlcl.log": log, "mlcl.owner": group.partition(".")[0]}, f"{label}, seed {seed}"
        self.add("sweeps", "confirmation", name=name, seed=seed, metrics=metrics, parent=parent, tags=tags)
        fields = {"metrics": metrics, "seed": seed, "log": log, "fingerprint": "data1"}
        return TrainingResult(log, name, State.COMPLETE, **fields)

    def store(self, run_id: str, result: SweepResult | TableResult) -> None:
        """Logs the document of a sweep or table to its run."""
        name = SWEEP_JSON if isinstance(result, SweepResult) else TABLE_JSON
        self.client.log_text(run_id, json.dumps(document(result)), name)

    def table(
        self,
        name: str,
        cells: Mapping[tuple[str, str], Sequence[Mapping[str, object] | None]],
        printed: Mapping[tuple[str, str], float] | None = None,
        of_cells: Mapping[tuple[str, str], Mapping[str, object]] | None = None,
        **more: object,
    ) -> dict[tuple[str, str, int], str]:
        """Adds a table of test/accuracy in percent; returns the runs of its cells by (row, column, seed).

        `cells` has the arguments of `add` for each seed, None where the seed is missing; `of_cells` are more
        fields of cells, `more` those of the result.
        """
        id, ids = f"id-of-{name}", {}
        table = self.add(name, "table", name=name, tags={"mlcl.name": name, "mlcl.id": id, "mlcl.log": id})
        cell_results = []
        for (row, column), runs in cells.items():
            trainings, logs = [], []
            for seed, run in enumerate(runs):
                log = f"{name}-{row}-{column}-{seed}"
                logs.append(None if run is None else log)
                if run is not None:
                    tags = {"mlcl.id": log, "mlcl.log": log, **run.get("tags", {})}
                    arguments = {"seed": seed, "parent": table, **run, "tags": tags}
                    ids[row, column, seed] = self.add(name, "cell", **arguments)
                    trainings.append(
                        TrainingResult(
                            log, f"{row}, {column}, seed {seed}", State(run.get("state", "COMPLETE")),
                            metrics=run.get("metrics", {}), seed=run.get("seed", seed),
                            changes=run.get("params", {}), fingerprint=run.get("data", "data1"), log=log,
                        )
                    )  # fmt: skip
            values = tuple(run and 100 * run["metrics"]["test/accuracy"] for run in runs)
            figure = FigureResult("accuracy", "test/accuracy", (printed or {}).get((row, column)), values, 50)
            params = dict(trainings[0].changes) if trainings else {}
            cell_results.append(
                CellResult(
                    row, column, f"{row}/{column}", (figure,), tuple(logs), params=params,
                    trainings=tuple(trainings), data=_rows_seen(next(filter(None, runs), {})),
                    **(of_cells or {}).get((row, column), {}),
                )
            )  # fmt: skip
        texts = (f"mlcl reproduce {name}", "Accuracy", "A paper, Table 9", "Less of it.")
        fields = (*texts, State.COMPLETE, "", Path(), tuple(cell_results), "percent", {"accuracy": True})
        self.store(table, TableResult(id, name, *fields, **more))
        return ids

    def left(self, id: str, folder: Path) -> None:
        """Logs the files that a training left in `folder` as the run's artifacts."""
        self.client.log_artifacts(id, str(folder / "model"), "model")
        for name in ("embeddings.parquet", "result.json"):
            self.client.log_artifact(id, str(folder / name))


def _rows_seen(its: Mapping[str, object]) -> str:
    """Returns a text of the settings that decide the rows and labels of a run; seeds are not among them."""
    keys = ("data.subset.n", "objective.classifier.labels")
    return str([its.get("data"), *(its.get("params", {}).get(key) for key in keys)])
