"""An MLflow store with runs whose figures are made up, for what reads it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

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
