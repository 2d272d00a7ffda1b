"""The trials of a sweep in MLflow: opened before they start, closed by the one process that knows why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig
from mlcl.service.single import start_run
from mlcl.service.trial import trial_config
from mlcl.tracking import Provenance, RunLog, State, Tracker
from mlcl.training.files import RESULT
from mlcl.training.material import Material


@dataclass
class Trial:
    """One training of a sweep: a search trial, or a seed of a confirmation."""

    label: str
    job: JobConfig
    log: RunLog
    folder: Path
    settings: Mapping[str, Any]
    state: State = State.RUNNING
    reason: str = ""
    score: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """The MLflow run."""
        return self.log.run_id


class Book:
    """All trials of one sweep, by MLflow run id."""

    def __init__(
        self, tracker: Tracker, material: Material, source: Provenance, folder: Path, home: Path, score: str
    ) -> None:
        self.trials: dict[str, Trial] = {}
        self._groups: list[RunLog] = []
        self._owner = folder.name
        self._tracker, self._material, self._source = tracker, material, source
        self._folder, self._home, self._score = folder, home, score

    def open(
        self,
        label: str,
        job: JobConfig,
        *,
        parent: str,
        settings: Mapping[str, Any],
        tags: dict[str, str],
        test: bool,
    ) -> tuple[Trial, dict[str, Any]]:
        """A nested run for a training that is about to start, and the config for its actor."""
        log = self._start(label, job, parent, tags)
        trial = Trial(label, job, log, self._folder / "trials" / log.run_id, settings)
        self.trials[log.run_id] = trial
        config = trial_config(
            job,
            folder=trial.folder,
            home=self._home,
            uri=self._tracker.uri,
            run_id=log.run_id,
            score=self._score,
            test=test,
        )
        return trial, config

    def group(self, label: str, job: JobConfig, parent: str) -> RunLog:
        """A nested run that only holds others: the seeds of one confirmation."""
        log = self._start(label, job, parent, {"mlcl.kind": "confirmation"})
        self._groups.append(log)
        return log

    def close_group(self, log: RunLog, state: State, reason: str = "") -> None:
        """Ends a group."""
        self._groups.remove(log)
        log.finish(state, reason)

    def _start(self, label: str, job: JobConfig, parent: str, tags: dict[str, str]) -> RunLog:
        return start_run(
            self._tracker,
            job,
            self._material,
            name=label,
            owner=self._owner,
            parent=parent,
            tags=tags,
            source=self._source,
        )

    def close(self, run_id: str, state: State, score: float | None = None, reason: str = "") -> Trial:
        """Sets a trial's state, here and in MLflow. A second call for the same trial changes nothing."""
        trial = self.trials[run_id]
        if trial.state is not State.RUNNING:
            return trial
        if state is State.FAILED and not reason:
            # The trial wrote down why before it ended, unless its process was killed.
            reason = self._tracker.reason(run_id) or "its process died"
        trial.state, trial.score, trial.reason = state, score, reason
        if state is State.COMPLETE:
            trial.metrics = json.loads((trial.folder / RESULT).read_text())
        if score is not None:
            trial.log.metrics({"score": score}, step=0)
        trial.log.finish(state, reason)
        return trial

    def close_open(self, state: State, reason: str) -> None:
        """Closes whatever is still RUNNING."""
        for run_id, trial in self.trials.items():
            if trial.state is State.RUNNING:
                self.close(run_id, state, reason=reason)
        for group in list(self._groups):
            self.close_group(group, state, reason)
