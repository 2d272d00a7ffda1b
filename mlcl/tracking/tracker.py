"""The MLflow server or store that runs are delivered to."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Self

# Before MLflow reads them. A request is tried once: whoever sends knows better when to try again, and a
# repeated request to make a run would make two.
os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# Standard output is for results.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from mlcl.errors import UserError
from mlcl.tracking.preflight import reach
from mlcl.tracking.uri import KEY, dashboard, shown, sqlite_file, tracking_uri

# Making the tables of a new store is no news to anybody.
for _chatty in ("mlflow.store.db.utils", "mlflow.store.model_registry.abstract_store"):
    logging.getLogger(_chatty).setLevel(logging.WARNING)
logging.getLogger("alembic").setLevel(logging.WARNING)

BEST = "best"
"""The alias of an experiment's best registered model."""


class Tracker:
    """One MLflow tracking server or store.

    `uri` is MLFLOW_TRACKING_URI where it is set, else an SQLite file under `home`. Raises UserError where it
    does not answer or `home` cannot be written.
    """

    def __init__(self, home: Path, uri: str | None = None) -> None:
        self.uri = uri or tracking_uri(home)
        self.shown = shown(self.uri)
        self.home = home.resolve()
        reach(self.uri, self.home)
        try:
            # Two first commands at once would both make the tables.
            with FileLock(self.home / ".tracking.lock"):
                self.client = MlflowClient(tracking_uri=self.uri)
                self.client.search_experiments(max_results=1)
        except Exception as error:
            reason = self.safe(f"{type(error).__name__}: {error}")
            raise UserError(
                "tracking store cannot be used", key=KEY, found=f"{self.shown} ({reason})"
            ) from None

    @classmethod
    def existing(cls, home: Path, uri: str | None = None) -> Self:
        """For who only reads. Raises UserError where nothing was tracked before, and makes no store there."""
        file = sqlite_file(uri or tracking_uri(home))
        if file is not None and not file.is_file():
            raise UserError(
                "no runs were tracked here",
                key="--home",
                found=f"{home} (no {file})",
                allowed=f"the home of earlier runs, or their server in {KEY}",
            )
        return cls(home, uri)

    @staticmethod
    def uri_for(home: Path) -> str:
        """Where runs under `home` are tracked."""
        return tracking_uri(home)

    def safe(self, text: str) -> str:
        """The text without the password of the URI."""
        return text.replace(self.uri, self.shown)

    def experiment(self, name: str) -> str:
        """The id of an experiment, made where it is new; two processes at once get the same one.

        Raises UserError for one that was deleted.
        """
        found = self.client.get_experiment_by_name(name)
        if found is None:
            local = self.uri.startswith("sqlite:")
            location = (self.home / "artifacts" / name).as_uri() if local else None
            try:
                return str(self.client.create_experiment(name, artifact_location=location))
            except MlflowException:
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise UserError("the experiment was deleted in MLflow", key="experiment", found=name)
        return str(found.experiment_id)

    def register(self, name: str, run_id: str, artifact: str, metric: str, score: float, mode: str) -> str:
        """A version of the registered model `name` from a run's artifact folder, one a run.

        The alias `best` moves to it unless the version that has it is as good by the same metric.
        """
        self.make_model(name)
        source = f"{self.client.get_run(run_id).info.artifact_uri}/{artifact}"
        version = self.versions(run_id, source).get(name)
        if version is None:
            tags = {"metric": metric, "score": repr(score)}
            version = str(self.client.create_model_version(name, source, run_id, tags=tags).version)
        best = self._best(name)
        if best is not None and str(best.version) != version and _as_good(best, metric, score, mode):
            return f"models:/{name}/{version} ({BEST} stays with an earlier version)"
        self.client.set_registered_model_alias(name, BEST, version)
        return f"models:/{name}@{BEST} (version {version})"

    def make_model(self, name: str) -> None:
        """A registered model, where there is none of that name."""
        try:
            self.client.create_registered_model(name)
        except MlflowException:
            self.client.get_registered_model(name)  # it exists already, or this raises what is wrong

    def versions(self, run_id: str, source: str) -> dict[str, str]:
        """The versions that were made from these artifacts of a run before, by their registered names."""
        found = self.client.search_model_versions(f"run_id = '{run_id}'")
        return {str(v.name): str(v.version) for v in found if v.source == source}

    def _best(self, name: str) -> ModelVersion | None:
        try:
            return self.client.get_model_version_by_alias(name, BEST)
        except MlflowException:
            return None

    def dashboard(self) -> str:
        """What opens MLflow's pages on this store."""
        return dashboard(self.uri)


def _as_good(version: ModelVersion, metric: str, score: float, mode: str) -> bool:
    if version.tags.get("metric") != metric:
        return False
    held = float(version.tags["score"])
    return held >= score if mode == "max" else held <= score
