"""Runs in MLflow: start or re-attach, log without blocking, finish in a true state."""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from mlcl.errors import UserError
from mlcl.tracking.names import MLFLOW_STATUS, State
from mlcl.tracking.provenance import Provenance
from mlcl.tracking.reach import KEY, reach

# Making the tables of a new store is no news to anybody.
logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
logging.getLogger("alembic").setLevel(logging.WARNING)

BEST = "best"
"""The alias of an experiment's best registered model."""
BATCH = 100
"""Parameters in one request: MLflow's own limit."""


class Tracker:
    """One MLflow tracking server or store.

    `uri` is MLFLOW_TRACKING_URI where it is set, else an SQLite file under `home`.
    """

    def __init__(self, home: Path, uri: str | None = None) -> None:
        self.uri = uri or self.uri_for(home)
        self._local = self.uri.startswith("sqlite:")
        self._home = home.resolve()
        reach(self.uri, self._home)
        try:
            # Two first commands at once would both make the tables.
            with FileLock(self._home / ".tracking.lock"):
                self.client = MlflowClient(tracking_uri=self.uri)
                self.client.search_experiments(max_results=1)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UserError(
                "tracking store cannot be used", key=KEY, found=f"{self.uri} ({reason})"
            ) from None

    @staticmethod
    def uri_for(home: Path) -> str:
        """Where runs under `home` are tracked."""
        return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home.resolve()}/mlflow.db"

    def experiment(self, name: str) -> str:
        """The id of an experiment, made where it is new; two processes at once get the same one."""
        found = self.client.get_experiment_by_name(name)
        if found is None:
            location = (self._home / "artifacts" / name).as_uri() if self._local else None
            try:
                return str(self.client.create_experiment(name, artifact_location=location))
            except MlflowException:
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise UserError("the experiment was deleted in MLflow", key="experiment", found=name)
        return str(found.experiment_id)

    def start(
        self,
        experiment: str,
        name: str,
        *,
        owner: str,
        params: Mapping[str, str],
        tags: Mapping[str, str],
        source: Provenance | None = None,
        parent: str | None = None,
    ) -> RunLog:
        """A new run with its parameters and where it comes from; `parent` nests it.

        `owner` is the id of the run or sweep whose process answers for its state.
        """
        all_tags = dict(source.tags if source else {}) | dict(tags)
        all_tags |= {"mlcl.owner": owner, "mlcl.state": State.RUNNING.value}
        if parent is not None:
            all_tags["mlflow.parentRunId"] = parent
        run = self.client.create_run(self.experiment(experiment), tags=all_tags, run_name=name)
        log = RunLog(self.client, run.info.run_id)
        log.params(params)
        if source is not None and source.diff:
            self.client.log_text(run.info.run_id, source.diff, "provenance/uncommitted.diff")
        return log

    def attach(self, run_id: str) -> RunLog | None:
        """An existing run, RUNNING again; None where this store has no such run."""
        try:
            run = self.client.get_run(run_id)
        except MlflowException:
            return None
        if run.info.lifecycle_stage != "active":
            return None
        self.client.update_run(run_id, status="RUNNING")
        self.client.set_tag(run_id, "mlcl.state", State.RUNNING.value)
        return RunLog(self.client, run_id, attached=True)

    def running(self, experiment: str, id: str) -> list[str]:
        """The MLflow runs that a run or sweep `id` left RUNNING: its own and all below it."""
        where = f"attributes.status = 'RUNNING' and tags.`mlcl.owner` = '{id}'"
        found = self.client.search_runs([self.experiment(experiment)], where)
        return [run.info.run_id for run in found]

    def reason(self, run_id: str) -> str:
        """Why a run failed, as it wrote itself; empty where it did not."""
        return str(self.client.get_run(run_id).data.tags.get("mlcl.reason", ""))

    def register(self, name: str, run_id: str, artifact: str, metric: str, score: float, mode: str) -> str:
        """A new version of the registered model `name` from a run's artifact folder.

        The alias `best` moves to it unless the version that has it is as good by the same metric.
        """
        try:
            self.client.create_registered_model(name)
        except MlflowException:
            self.client.get_registered_model(name)  # it exists already, or this raises what is wrong
        source = f"{self.client.get_run(run_id).info.artifact_uri}/{artifact}"
        tags = {"metric": metric, "score": repr(score)}
        version = str(self.client.create_model_version(name, source, run_id, tags=tags).version)
        if not self._holds(name, metric, score, mode):
            self.client.set_registered_model_alias(name, BEST, version)
            return f"models:/{name}@{BEST} (version {version})"
        return f"models:/{name}/{version} ({BEST} stays with an earlier version)"

    def _holds(self, name: str, metric: str, score: float, mode: str) -> bool:
        """Whether the version with the alias is as good."""
        try:
            tags = self.client.get_model_version_by_alias(name, BEST).tags
        except MlflowException:
            return False
        if tags.get("metric") != metric:
            return False
        held = float(tags["score"])
        return held >= score if mode == "max" else held <= score

    def dashboard(self) -> str:
        """The command that opens MLflow's pages on this store."""
        if not self._local:
            return f"open {self.uri}"
        return f"mlflow ui --backend-store-uri {shlex.quote(self.uri)}"


class RunLog:
    """Logs to one run. Metrics are sent by a background thread; `flush` waits for it."""

    def __init__(self, client: MlflowClient, run_id: str, *, attached: bool = False) -> None:
        self.run_id = run_id
        self._client = client
        self._attached = attached
        self._known: dict[str, set[int]] = {}
        self._pending: list[Any] = []

    def params(self, params: Mapping[str, str]) -> None:
        """Parameters, written once."""
        entries = [Param(key, value) for key, value in params.items()]
        for start in range(0, len(entries), BATCH):
            self._client.log_batch(self.run_id, params=entries[start : start + BATCH])

    def metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Metrics at a step, at once returned from. A point that the run has already is left out."""
        now = int(time.time() * 1000)
        entries = [
            Metric(key, float(value), now, step) for key, value in metrics.items() if self._is_new(key, step)
        ]
        if entries:
            self._pending.append(self._client.log_batch(self.run_id, metrics=entries, synchronous=False))

    def _is_new(self, key: str, step: int) -> bool:
        """A resumed run repeats the steps since its checkpoint; each is logged once."""
        if not self._attached:
            return True
        if key not in self._known:
            history = self._client.get_metric_history(self.run_id, key)
            self._known[key] = {metric.step for metric in history}
        if step in self._known[key]:
            return False
        self._known[key].add(step)
        return True

    def tags(self, tags: Mapping[str, str]) -> None:
        """Tags, set at once."""
        entries = [RunTag(key, value) for key, value in tags.items()]
        self._client.log_batch(self.run_id, tags=entries)

    def artifacts(self, paths: Sequence[Path], under: str | None = None) -> None:
        """Files or folders, copied to the run's artifacts."""
        for path in paths:
            if path.is_dir():
                self._client.log_artifacts(self.run_id, str(path), "/".join(filter(None, [under, path.name])))
            else:
                self._client.log_artifact(self.run_id, str(path), under)

    def text(self, text: str, name: str) -> None:
        """A text artifact."""
        self._client.log_text(self.run_id, text, name)

    def flush(self) -> None:
        """Waits until all metrics so far have been delivered."""
        pending, self._pending = self._pending, []
        for operation in pending:
            operation.wait()

    def finish(self, state: State, reason: str = "") -> None:
        """Delivers what is pending and sets the state, in the tag and as MLflow's status."""
        try:
            self.flush()
        except MlflowException as error:
            reason = reason or f"not all metrics were delivered: {error}"
        tags = {"mlcl.state": state.value} | ({"mlcl.reason": reason[:5000]} if reason else {})
        self.tags(tags)
        self._client.set_terminated(self.run_id, status=MLFLOW_STATUS[state])
