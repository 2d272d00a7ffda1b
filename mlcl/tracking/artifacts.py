"""Replaces a folder among the artifacts of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from mlcl.errors import UserError
from mlcl.tracking.mlflow_private import artifact_store
from mlcl.tracking.tracker import Tracker


def replace_artifacts(tracker: Tracker, run_id: str, folder: Path, artifact: str) -> None:
    """Logs the content of `folder` as the run's artifact `artifact` and removes the artifact's other files.

    They stay where the store does not allow deletion. An interrupt leaves nothing of the artifact. Raises
    UserError where the store does not take the new files.
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
        found = f"run {run_id} ({tracker.reason(error)})"
        raise UserError("MLflow does not take these files", file=folder, key=artifact, found=found) from None
    kept = {f"{artifact}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*")}
    with suppress(Exception):  # each kind of store raises its own errors
        for path in [path for path in _files(client, run_id, artifact) if path not in kept]:
            repository.delete_artifacts(path)


def _files(client: MlflowClient, run_id: str, folder: str) -> Iterator[str]:
    for item in client.list_artifacts(run_id, folder):
        if item.is_dir:
            yield from _files(client, run_id, item.path)
        else:
            yield item.path
