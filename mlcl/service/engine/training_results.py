"""Builds `TrainingResult`s from the entries of a ledger and the logs of the trainings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from mlcl.config import job_hash, load_job
from mlcl.results.provenance import Tags, log_start
from mlcl.results.training_result import TrainingResult, changes
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import share
from mlcl.tracking import State, plain_parameters, typed_params
from mlcl.tracking.names import Tag


class TrainingResults:
    """Builds the results of trainings.

    The starts of logs and the parameters of jobs are cached, since results are built repeatedly. `run_id`
    returns the id of a log's run in MLflow, or None.
    """

    def __init__(self, home: Path, run_id: Callable[[str], str | None]) -> None:
        self._home, self.run_id = home, run_id
        self._log_starts: dict[str, dict[str, Any]] = {}
        self._last_start: dict[str, Any] = {}
        self._cached_params: dict[str, tuple[dict[str, Any], str]] = {}
        self._cached_changes: dict[str, tuple[Mapping[str, Any], dict[str, Any], str]] = {}

    def tags(self, log: str) -> Tags:
        """Returns the tags with which the log with the id `log` was started; empty if the log is gone."""
        tags: Tags = self.start(log).get("tags", {})
        return tags

    def start(self, log: str) -> dict[str, Any]:
        """Returns time and tags of the start of a log, see `log_start`; an empty dict if the log is gone."""
        if not self._log_starts.get(log):
            content = log_start(self._home, log)
            self._last_start = share(
                {name: content[name] for name in ("time", "tags") if name in content}, self._last_start
            )
            self._log_starts[log] = self._last_start
        return self._log_starts[log]

    def job(self, log: str, job: Mapping[str, Any], free: Collection[str] = ()) -> tuple[dict[str, Any], str]:
        """Returns the parameters of a job, without the `free` keys, and its hash; cached by the log's id."""
        if log not in self._cached_params:
            self._cached_params[log] = _params_and_hash(job, free)
        return self._cached_params[log]

    def build(
        self, entry: Entry, log: str, shared: Mapping[str, Any], free: Collection[str] = ()
    ) -> TrainingResult:
        """Returns the result of a training; its `changes` are the parameters that differ from `shared`."""
        old_shared, differences, hash_ = self._cached_changes.get(log, (None, {}, ""))
        if old_shared is not shared and old_shared != shared:
            params, hash_ = _params_and_hash(entry.job, free)
            differences = changes(shared, params)
            self._cached_changes[log] = shared, differences, hash_
        if entry.state is State.COMPLETE:
            chosen_params = plain_parameters(entry.chosen)
            job_changes = {key: value for key, value in differences.items() if key not in chosen_params}
            differences = job_changes | changes(
                {key: shared[key] for key in chosen_params if key in shared}, chosen_params
            )
        return TrainingResult(
            key=entry.key,
            label=entry.label,
            state=entry.state,
            settings=entry.settings,
            score=entry.score,
            values=tuple(entry.values),
            chosen=entry.chosen,
            metrics=entry.metrics,
            blocks=entry.blocks,
            reason=entry.reason,
            intermediate=tuple(entry.intermediate),
            number=entry.number,
            origin=entry.origin,
            seed=entry.job["train"]["seed"],
            changes=differences,
            job_hash=hash_,
            fingerprint=self.tags(log).get(Tag.FINGERPRINT, ""),
            started=self.start(log).get("time"),
            seconds=entry.cost.seconds,
            cpu_seconds=entry.cost.cpu_seconds,
            gpu_seconds=entry.cost.gpu_seconds,
            log=log,
            run_id=self.run_id(log),
        )


def _params_and_hash(job: Mapping[str, Any], free_keys: Collection[str]) -> tuple[dict[str, Any], str]:
    config = load_job(job)
    return typed_params(config, free_keys), job_hash(config)
