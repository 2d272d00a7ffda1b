"""Opens the MLflow server or store to which runs are sent, and manages its experiments and artifacts."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from typing_extensions import Self

# Set before MLflow reads them. A request is tried once: the sender decides when to try again, and a repeated
# request to create a run would create two.
os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# Standard output is for results.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

from mlflow import MlflowClient
from mlflow.entities import Experiment, LifecycleStage, Run
from mlflow.exceptions import MlflowException

from mlcl.errors import UserError
from mlcl.tracking.mlflow_private import artifact_store, make_tables, relocate_artifacts, store_lock
from mlcl.tracking.network import check_reachable
from mlcl.tracking.refusal import refusal
from mlcl.tracking.uri import KEY, hide_password, sqlite_file, tracking_uri

# MLflow reports each table of a new store.
for _logger_name in ("mlflow.store.db.utils", "mlflow.store.model_registry.abstract_store"):
    logging.getLogger(_logger_name).setLevel(logging.WARNING)
logging.getLogger("alembic").setLevel(logging.WARNING)
# MLflow logs, with a traceback, each database error that it also raises, such as a lock or a full disk.
logging.getLogger("mlflow.store.db.utils").addFilter(lambda record: record.levelno < logging.ERROR)

PROBE = ".mlcl-probe"
"""The artifact that is written to an experiment's location, and deleted, to test write access."""


class Tracker:
    """An open MLflow tracking server or store, with its `client`; by default that of `tracking_uri`."""

    def __init__(self, home: Path, uri: str | None = None) -> None:
        self.uri = uri or tracking_uri(home)
        self.shown = hide_password(self.uri)
        self.home = home.resolve()
        check_reachable(self.uri, self.home)
        try:
            with store_lock(self.uri, self.home):
                make_tables(sqlite_file(self.uri), (self.home / "artifacts").as_uri())
                relocate_artifacts(self.uri, self.home)
                # A registry that MLFLOW_REGISTRY_URI names could not read this store's models.
                self.client = MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)
                self.client.search_experiments(max_results=1)
        except Exception as error:
            reason = self.hide_password(f"{type(error).__name__}: {error}")
            raise UserError(
                "tracking store cannot be used", key=KEY, found=f"{self.shown} ({reason})"
            ) from None

    @classmethod
    def open_existing(cls, home: Path, uri: str | None = None) -> Self:
        """Opens a store that exists already. Raises UserError if its SQLite file is missing."""
        file = sqlite_file(uri or tracking_uri(home))
        if file is not None and not file.is_file():
            raise UserError(
                "no runs were tracked here",
                key="--home",
                found=f"{home} (no {file})",
                allowed=f"the home of earlier runs, or their server in {KEY}",
            )
        return cls(home, uri)

    def hide_password(self, text: str) -> str:
        """Returns the text with the password of the store's URI hidden."""
        return text.replace(self.uri, self.shown)

    def reason(self, error: Exception) -> str:
        """Returns the first line of an error, else its class; the password of the store's URI is hidden."""
        return next(iter(self.hide_password(str(error)).strip().splitlines()), type(error).__name__)

    def experiment(self, name: str) -> str:
        """Returns an experiment's id; creates it if it does not exist. Raises UserError if it was deleted."""
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            local = self.uri.startswith("sqlite:")
            location = (self.home / "artifacts" / name).as_uri() if local else None
            try:
                return str(self.client.create_experiment(name, artifact_location=location))
            except MlflowException:
                experiment = self.client.get_experiment_by_name(name)
                if experiment is None:
                    raise
        if experiment.lifecycle_stage != "active":
            raise trashed_experiment(self.uri, experiment.experiment_id).error("experiment", name)
        return str(experiment.experiment_id)

    def open_experiment(
        self,
        name: str,
        run_id: str | None = None,
        announce: Callable[[str], None] = lambda _: None,
        *,
        needs_run: bool = True,
    ) -> Experiment:
        """Returns the experiment to log to, after a test file was written to its artifact location.

        If MLflow has the run `run_id`, this is the run's experiment, announced if it has another name.
        Otherwise it is the experiment `name`, created if it does not exist. Raises UserError if the file
        cannot be written, the experiment was deleted or, with `needs_run`, the run was deleted.
        """
        run = None if run_id is None else existing_run(self.client, run_id)
        trash = None if run is None else find_trashed(self.client, self.uri, run.info.run_id)
        if trash is not None and (needs_run or trash.what == "experiment"):
            raise trash.error("experiment", name)
        id = self.experiment(name) if run is None else run.info.experiment_id
        experiment = self.client.get_experiment(id)
        if experiment.name != name:
            announce(f"the experiment {name} is now {experiment.name} in MLflow, where this goes on")
        location = str(experiment.artifact_location)
        try:
            with TemporaryDirectory(prefix="mlcl-") as scratch:
                file = Path(scratch) / PROBE
                file.write_text("mlcl\n")
                store = artifact_store(location, self.uri)
                store.log_artifact(str(file))
            with suppress(Exception):  # not all stores allow it
                store.delete_artifacts(PROBE)
        except Exception as error:
            if (reason := refusal(error)) is None:
                raise
            raise UserError(
                "the experiment's artifacts cannot be written",
                key="experiment",
                found=f"{experiment.name}, at {location} ({self.hide_password(reason)})",
                allowed="credentials or rights for this location, or another experiment",
            ) from None
        return experiment

    def make_model(self, name: str) -> None:
        """Creates a registered model, unless it exists."""
        try:
            self.client.create_registered_model(name)
        except MlflowException:
            self.client.get_registered_model(name)  # raises the error if it does not exist

    def versions(self, run_id: str, source: str) -> dict[str, str]:
        """Returns the model versions made of the artifacts `source` of a run, keyed by the model's name."""
        versions = self.client.search_model_versions(f"run_id = '{run_id}'")
        return {str(v.name): str(v.version) for v in versions if v.source == source}


def replace_artifacts(tracker: Tracker, run_id: str, folder: Path, artifact: str) -> None:
    """Logs the content of `folder` as the run's artifact `artifact` and removes the artifact's other files.

    The other files stay where the store does not allow deletion. After a KeyboardInterrupt the whole artifact
    is removed.
    """
    client = tracker.client
    repository = artifact_store(client.get_run(run_id).info.artifact_uri, tracker.uri)
    try:
        client.log_artifacts(run_id, str(folder), artifact)
    except KeyboardInterrupt:
        with suppress(Exception):
            repository.delete_artifacts(artifact)
        raise
    except (MlflowException, OSError) as error:
        detail = f"run {run_id} ({tracker.reason(error)})"
        raise UserError("MLflow does not take these files", file=folder, key=artifact, found=detail) from None
    new_files = {f"{artifact}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*")}
    with suppress(Exception):  # each kind of store raises its own errors
        for path in [path for path in _artifact_files(client, run_id, artifact) if path not in new_files]:
            repository.delete_artifacts(path)


def _artifact_files(client: MlflowClient, run_id: str, folder: str) -> Iterator[str]:
    for item in client.list_artifacts(run_id, folder):
        if item.is_dir:
            yield from _artifact_files(client, run_id, item.path)
        else:
            yield item.path


@dataclass(frozen=True)
class Trashed:
    """A deleted run or experiment (`what`), and the `command` that restores it."""

    what: str
    command: str

    def error(self, key: str, found: str) -> UserError:
        """Returns the error for a command that needs the deleted run or experiment."""
        problem, allowed = f"the {self.what} was deleted in MLflow", f"`{self.command}` restores it"
        return UserError(problem, key=key, found=found, allowed=allowed)


def existing_run(client: MlflowClient, run_id: str) -> Run | None:
    """Returns a run, also a deleted one; None if there is none. Raises MlflowException in an outage."""
    try:
        return client.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def find_trashed(client: MlflowClient, uri: str, run_id: str) -> Trashed | None:
    """Returns how to restore a deleted run of the store `uri`; None if it is not deleted or is gone."""
    run = existing_run(client, run_id)
    if run is None:
        return None
    experiment = client.get_experiment(run.info.experiment_id)
    if experiment.lifecycle_stage == LifecycleStage.DELETED:  # its runs are deleted with it
        return trashed_experiment(uri, experiment.experiment_id)
    if run.info.lifecycle_stage == LifecycleStage.DELETED:
        return Trashed("run", _mlflow_command(uri, "runs", "restore", "--run-id", run_id))
    return None


def trashed_experiment(uri: str, id: str) -> Trashed:
    """Returns how to restore a deleted experiment of the store `uri`."""
    return Trashed("experiment", _mlflow_command(uri, "experiments", "restore", "-x", id))


def _mlflow_command(uri: str, *words: str) -> str:
    """Returns a `mlflow` command line on this store; a server's URI stays in the environment."""
    store = f"{KEY}={shlex.quote(uri)} " if uri.startswith("sqlite:") else ""
    return f"{store}mlflow {shlex.join(words)}"
