"""The runs of a tracking store, asked of MLflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

LATEST_FIRST = "attributes.start_time DESC"


class MlflowStore:
    """The runs of one tracking store, as `mlcl.report.runs.Store`."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client
        self._experiments = [str(each.experiment_id) for each in _all(client.search_experiments)]

    def get(self, run_id: str) -> Run | None:
        """The run of MLflow's id; None where there is none or it was deleted."""
        try:
            run = self._client.get_run(run_id)
        except MlflowException:
            return None
        return run if run.info.lifecycle_stage == "active" else None

    def tagged(self, tag: str, value: str, how: str) -> Iterator[Run]:
        """The runs whose `tag` is `value`, or with LIKE matches it, the latest first."""
        quote = '"' if "'" in value else "'"
        exact, asked = how == "=", value
        if quote in value:  # MLflow's filters have no escape, but _ matches any character
            asked, how = value.replace(quote, "_"), "LIKE"
        found = self._search(f"tags.`{tag}` {how} {quote}{asked}{quote}")
        return (run for run in found if asked == value or not exact or run.data.tags[tag] == value)

    def latest(self) -> Iterator[Run]:
        """All runs, the latest first."""
        return self._search("")

    def _search(self, where: str) -> Iterator[Run]:
        search = partial(self._client.search_runs, self._experiments, where, order_by=[LATEST_FIRST])
        return _all(search)


def _all(search: Callable[..., Any]) -> Iterator[Any]:
    """The results of a search, page by page."""
    token = None
    while True:
        page = search(page_token=token)
        yield from page
        token = page.token
        if not token:
            return
