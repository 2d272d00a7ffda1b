"""Stores trainings in the folder of their sweep or table; their MLflow runs are nested in its run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from mlcl.config import load_job
from mlcl.data import DatasetInfo
from mlcl.results.training_result import training_folder
from mlcl.service.engine.closing import end_confirmation_log, log_id, write_end
from mlcl.service.engine.entries import Confirmation, End, Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.source import TrainingStore
from mlcl.tracking import RunLog, State, params_of
from mlcl.tracking.job_logs import JobLogs
from mlcl.tracking.names import Tag
from mlcl.training.run_files import MODEL, MODELS

FRESH = ", fresh seeds"
"""The suffix of the name of a confirmation's MLflow run; the trial's run has the same label without it."""
RACE = ", race"
"""The suffix of the name of an MLflow run of a setting in a race."""


class NestedTrials(TrainingStore):
    """The store of trainings of a sweep or a tuned cell, with folders `trials/KEY` and log ids `SWEEP.KEY`.

    `free` are the post-hoc keys that each training chooses; its log has no parameters for them at the start.
    `scopes` are the searches whose trainings are stored here, by default all. `parent` is the id of
    the log in which the logs are nested, by default that of the sweep. `shared` are parameters of the sweep's
    run, which the runs of the trials with an empty scope do not repeat.
    """

    def __init__(
        self,
        ledger: Ledger,
        folder: Path,
        logs: JobLogs,
        data: DatasetInfo,
        free: tuple[str, ...],
        scopes: Collection[str] | None = None,
        parent: str = "",
        shared: Mapping[str, str] | None = None,
    ) -> None:
        self._ledger, self._folder, self._logs, self._data, self._free_keys = ledger, folder, logs, data, free
        self._scopes, self._parent, self._shared_params = scopes, parent or folder.name, shared or {}

    def folder(self, entry: Entry) -> Path:
        """Returns the training's folder, `trials/KEY` in the sweep's folder."""
        return training_folder(self._folder, entry.key)

    def log(self, entry: Entry) -> str:
        """Returns the id of the training's log, `SWEEP.KEY`."""
        return log_id(self._folder.name, entry.key)

    def open(self, entry: Entry) -> None:
        """Starts the log of a training, unless it has been started."""
        tags: dict[str, str] = {Tag.KIND: "confirmation"}
        if entry.number is not None:
            tags = {Tag.KIND: "trial", Tag.TRIAL: str(entry.number)}
            tags |= {Tag.ORIGIN: entry.origin} if entry.origin else {}
            tags |= {Tag.SCOPE: entry.scope} if entry.scope else {}
        parent = self._parent if entry.confirmation is None else log_id(self._folder.name, entry.confirmation)
        self._start_log(entry, entry.label, parent, tags)

    def open_confirmation(self, confirmation: Confirmation) -> None:
        """Starts the log of a confirmation, in which the logs of its seeds are nested."""
        tags: dict[str, str] = {Tag.KIND: "confirmation", Tag.ID: confirmation.label}
        name = f"{confirmation.label}{RACE if confirmation.race else FRESH}"
        self._start_log(confirmation, name, self._parent, tags)

    def _start_log(self, item: Entry | Confirmation, name: str, parent: str, tags: dict[str, str]) -> None:
        id = log_id(self._folder.name, item.key)
        if RunLog.find(self._logs.home, id) is None:
            job = load_job(item.job)
            params = params_of(job, self._free_keys)
            if Tag.TRIAL in tags and Tag.SCOPE not in tags:
                params = {key: text for key, text in params.items() if self._shared_params.get(key) != text}
            seed, data = job.data.validation_seed, self._data
            if seed is not None and seed != data.validation_seed:  # the search draws its own validation rows
                data = data.with_validation(seed, dict(data.rows))
            self._logs.start(
                job,
                data,
                id=id,
                name=name,
                owner=self._folder.name,
                parent=parent,
                tags={**tags, Tag.KEY: item.key},
                params=params,
            )
        self._logs.deliver(id)

    def on_start(self, entry: Entry) -> None:
        """Sets the log of the training's confirmation to RUNNING. Its own process sets the training's log."""
        if entry.confirmation is not None:
            self.attach(entry.confirmation).set_state(State.RUNNING)

    def close(self, entry: Entry, end: End) -> None:
        """Writes the end to the ledger and to the training's log."""
        write_end(end, self.attach(entry.key), self.folder(entry), ledger=self._ledger, key=entry.key)

    def attach(self, key: str) -> RunLog:
        """Opens the log of the training or confirmation with this key."""
        return RunLog.attach(self._logs.home, log_id(self._folder.name, key))

    def open_all(self) -> None:
        """Starts logs that a killed command did not start, and logs the ends of confirmations."""
        for confirmation in self._ledger.confirmations.values():
            if self._is_in_scope(confirmation):
                self.open_confirmation(confirmation)
                if confirmation.key in self._ledger.confirmation_states:
                    self.close_confirmation(confirmation.key)
        for entry in self._entries():
            self.open(entry)

    def close_all(self) -> None:
        """Writes the end of each training to its log, if the log lacks it because a command was killed."""
        for entry in self._entries():
            self.close(entry, entry.last_end)

    def log_files(self, entry: Entry) -> None:
        """Logs the stored model and embeddings of a training as artifacts, unless its log has them."""
        log, folder = self.attach(entry.key), self.folder(entry)
        new_files = [
            path for name in MODELS if (path := folder / name).exists() and not log.has_artifact(path)
        ]
        if new_files:
            log.log_artifacts(new_files)
            log.flush()
            self._logs.deliver(log.id)

    def has_logged_files(self, entry: Entry) -> bool:
        """Whether the model of a training was logged as an artifact."""
        return self.attach(entry.key).has_artifact(self.folder(entry) / MODEL)

    def _entries(self) -> list[Entry]:
        return [entry for entry in self._ledger.entries.values() if self._is_in_scope(entry)]

    def _is_in_scope(self, item: Entry | Confirmation) -> bool:
        return self._scopes is None or item.scope in self._scopes

    def close_confirmation(self, key: str) -> None:
        """Writes the end of a confirmation, as the ledger has it, to its log."""
        end_confirmation_log(self.attach(key), self._ledger, key)
