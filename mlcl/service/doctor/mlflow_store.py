"""Opens an existing MLflow store, and creates none."""

from __future__ import annotations

from collections.abc import Iterator

from mlflow import MlflowClient
from mlflow.entities import Run, RunTag

from mlcl.service.doctor.finding import Scope
from mlcl.tracking import MLFLOW_STATUS, State
from mlcl.tracking.names import Tag
from mlcl.tracking.network import unreachable_reason
from mlcl.tracking.uri import sqlite_file

PAGE = 1000
"""Runs per request."""


class MlflowStore:
    """The runs of one store."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client

    def runs(self, tag: str) -> Iterator[Run]:
        """The runs that have a tag and were not deleted."""
        experiments = [each.experiment_id for each in self._client.search_experiments()]
        token: str | None = ""
        while experiments and token is not None:
            found = self._client.search_runs(
                experiments, f"tags.`{tag}` != ''", max_results=PAGE, page_token=token or None
            )
            yield from found
            token = found.token or None

    def set_state(self, run_id: str, state: State, reason: str) -> None:
        """Sets the tags and the status as a delivery does."""
        tags = [RunTag(Tag.STATE, state.value), RunTag(Tag.REASON, reason)]
        self._client.log_batch(run_id, tags=tags)
        if state is State.RUNNING:
            self._client.update_run(run_id, status=MLFLOW_STATUS[state])
        else:
            self._client.set_terminated(run_id, MLFLOW_STATUS[state])


def open_store(scope: Scope) -> MlflowStore | None:
    """The store; None where it does not exist or does not answer."""
    path = sqlite_file(scope.uri)
    if unreachable_reason(scope.uri) or (path is not None and not (path.exists() and path.stat().st_size)):
        return None
    return MlflowStore(MlflowClient(tracking_uri=scope.uri))
