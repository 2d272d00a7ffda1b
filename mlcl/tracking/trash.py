"""Finds runs and experiments that were deleted in MLflow, which keeps them until `mlflow gc`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from mlflow import MlflowClient
from mlflow.entities import LifecycleStage, Run
from mlflow.exceptions import MlflowException

from mlcl.errors import UserError
from mlcl.tracking.uri import KEY


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
    """Returns a run, also a deleted one; None where there is none. Raises MlflowException in an outage."""
    try:
        return client.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def trashed(client: MlflowClient, uri: str, run_id: str) -> Trashed | None:
    """Returns how to restore a run of the store `uri`; None where it is not deleted, or gone for good."""
    run = existing_run(client, run_id)
    if run is None:
        return None
    experiment = client.get_experiment(run.info.experiment_id)
    if experiment.lifecycle_stage == LifecycleStage.DELETED:  # its runs are deleted with it
        return trashed_experiment(uri, experiment.experiment_id)
    if run.info.lifecycle_stage == LifecycleStage.DELETED:
        return Trashed("run", _command(uri, "runs", "restore", "--run-id", run_id))
    return None


def trashed_experiment(uri: str, id: str) -> Trashed:
    """Returns how to restore a deleted experiment of the store `uri`."""
    return Trashed("experiment", _command(uri, "experiments", "restore", "-x", id))


def _command(uri: str, *words: str) -> str:
    """Returns a `mlflow` command line on this store; a server's URI stays in the environment."""
    store = f"{KEY}={shlex.quote(uri)} " if uri.startswith("sqlite:") else ""
    return f"{store}mlflow {shlex.join(words)}"
