"""An MLflow store with runs whose figures are made up, for what reads it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlflow.entities import Metric, Param, RunTag

from mlcl.tracking import Tracker

_clock = itertools.count(1_700_000_000_000, 1000)


class Store:
    """A tracking store, and runs in it as mlcl leaves them."""

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
        """A run's id. Each starts a second after the one before."""
        its = {"mlcl.state": state, "mlcl.data_fingerprint": data, "mlflow.runName": name, **(tags or {})}
        its |= {"mlcl.kind": kind} if kind else {}
        its |= {"mlcl.seed": str(seed)} if seed is not None else {}
        its |= {"mlflow.parentRunId": parent} if parent else {}
        started = next(_clock)
        run = self.client.create_run(self.tracker.experiment(experiment), start_time=started)
        id = str(run.info.run_id)
        keys = dict(params or {}) | ({"train.seed": seed} if seed is not None else {})
        self.client.log_batch(
            id,
            [Metric(metric, value, started, 0) for metric, value in (metrics or {}).items()],
            [Param(key, str(value)) for key, value in keys.items()],
            [RunTag(tag, value) for tag, value in its.items()],
        )
        return id

    def setting(self, experiment: str, figures: Mapping[int, float], **how) -> list[str]:
        """Plain runs of one setting: test/accuracy by seed."""
        return [
            self.add(experiment, seed=seed, metrics={"test/accuracy": value}, **how)
            for seed, value in figures.items()
        ]

    def sweep(self, name: str, settings: Mapping[str, Mapping[int, float]]) -> str:
        """A sweep with settings on fresh seeds."""
        tags = {"mlcl.name": name, "mlcl.id": f"id-of-{name}"}
        sweep = self.add("sweeps", "sweep", name=name, tags=tags)
        for label, figures in settings.items():
            key = f"confirm-{label.replace(' ', '')}"
            group = self.add(
                "sweeps", "confirmation", name=label, parent=sweep, seed=0, tags={"mlcl.key": key}
            )
            for seed, value in figures.items():
                self.add(
                    "sweeps",
                    "confirmation",
                    name=f"{label}, seed {seed}",
                    seed=seed,
                    parent=group,
                    metrics={
                        "test/accuracy": value,
                        "val/accuracy": value + 0.1,
                        "test/hamming_loss": 1 - value,
                    },
                    params={"lr": label},
                    tags={"mlcl.key": f"{key}-seed{seed}"},
                )
        return sweep

    def table(
        self,
        name: str,
        cells: Mapping[tuple[str, str], Sequence[Mapping[str, object] | None]],
        printed: Mapping[tuple[str, str], float] | None = None,
        **more: object,
    ) -> dict[tuple[str, str, int], str]:
        """A reproduced table of test/accuracy in percent, the runs of its cells by (row, column, seed).

        `cells` gives for each seed what `add` takes, None where the seed is missing; `more` are further
        entries of `table.json`.
        """
        tags = {"mlcl.name": name, "mlcl.id": f"id-of-{name}", "mlcl.kind": "table"}
        table = self.add(name, name=name, tags=tags)
        ids, trees = {}, []
        for (row, column), runs in cells.items():
            names = [
                None if its is None else f"{name}-{row}-{column}-{seed}" for seed, its in enumerate(runs)
            ]
            values = [its and 100 * its["metrics"]["test/accuracy"] for its in runs]
            for seed, its in enumerate(runs):
                if its is not None:
                    tags = {"mlcl.id": names[seed], "mlcl.cell": f"{row}, {column}, seed {seed}"}
                    ids[row, column, seed] = self.add(name, "cell", seed=seed, tags=tags, parent=table, **its)
            figure = {
                "name": "accuracy",
                "metric": "test/accuracy",
                "printed": (printed or {}).get((row, column)),
                "values": values,
                "verdict": "missing" if None in values else "within",
                "digits": 2,
            }
            tree = {"row": row, "column": column, "figures": [figure], "runs": names}
            trees.append(tree | {"data": _rows_seen(next(filter(None, runs), {}))})
        tree = {
            "name": name,
            "id": f"id-of-{name}",
            "title": "Accuracy",
            "source": "A paper, Table 9",
            "about": "Less of it.",
            "command": f"mlcl reproduce {name}",
            "unit": "percent",
            "higher": {"accuracy": True},
            "cells": trees,
            **more,
        }
        self.client.log_text(table, json.dumps(tree), "table.json")
        return ids

    def table_of(self, name: str, metric: str, cells: Mapping[tuple[str, str], Mapping[str, float]]) -> str:
        """The run of a table that trained nothing: its figures by (row, column) and the run's own id."""
        table = self.add(name, "table", name=name, tags={"mlcl.name": name, "mlcl.id": f"id-of-{name}"})
        told = {"name": "figure", "metric": metric, "printed": None, "verdict": "not judged", "digits": 2}
        trees = [
            {
                "row": row,
                "column": column,
                "runs": list(its),
                "figures": [told | {"values": list(its.values())}],
            }
            for (row, column), its in cells.items()
        ]
        self.client.log_text(table, json.dumps({"unit": "share", "cells": trees}), "table.json")
        return table

    def left(self, id: str, folder: Path) -> None:
        """Logs what a training left in `folder` as the run's artifacts."""
        self.client.log_artifacts(id, str(folder / "model"), "model")
        self.client.log_artifact(id, str(folder / "embeddings.parquet"))


def _rows_seen(its: Mapping[str, object]) -> str:
    """What decides the rows and labels of a run that `add` takes: not the seeds."""
    keys = ("data.subset.n", "objective.classifier.labels")
    return str([its.get("data"), *(its.get("params", {}).get(key) for key in keys)])
