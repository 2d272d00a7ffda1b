"""Starts the logs of runs of jobs, with parameters, provenance, fingerprints and the resolved job."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, count
from pathlib import Path

from mlcl.config import JobConfig, job_hash, job_yaml
from mlcl.data import DatasetInfo
from mlcl.plugins import registry
from mlcl.store import RunRecord, State
from mlcl.tracking import Provenance, RunLog, params_of
from mlcl.tracking.cursor import is_usable
from mlcl.tracking.names import MAX_NOTES, Tag
from mlcl.tracking.uri import stored_uri
from mlcl.training.run_files import JOB


@dataclass(frozen=True)
class JobLogs:
    """Starts the logs of a command's runs for the store `uri`. `deliver(id)` sends the log with this id."""

    home: Path
    uri: str
    source: Provenance
    deliver: Callable[[str], None]

    @property
    def stored_uri(self) -> str:
        """The URI of the store as records have it: relative to the home for a file in the home."""
        return stored_uri(self.uri, self.home)

    def start(
        self,
        job: JobConfig,
        data: DatasetInfo,
        *,
        id: str,
        name: str,
        owner: str,
        parent: str | None = None,
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> RunLog:
        """Starts the log of a job's run, or attaches to it; `params` default to those of the whole job."""
        return RunLog.start(
            self.home,
            id,
            uri=self.uri,
            experiment=job.experiment,
            name=name,
            owner=owner,
            params=params_of(job) if params is None else params,
            tags={
                Tag.ID: name,
                Tag.JOB_HASH: job_hash(job),
                Tag.DATA: data.name,
                Tag.FINGERPRINT: data.fingerprint,
                Tag.STORED_FINGERPRINT: data.stored_fingerprint,
                Tag.ROWS: json.dumps(dict(data.rows)),
                **_notes_tag(data),
                Tag.SEED: str(job.train.seed),
                Tag.LOWER_IS_BETTER: _minimized_metrics(),
                **(tags or {}),
            },
            parent=parent,
            source=self.source,
            texts={JOB: job_yaml(job)},
        )

    def start_group(
        self, kind: str, record: RunRecord, params: Mapping[str, str], tags: Mapping[str, str]
    ) -> RunLog:
        """Starts the log of a sweep or table, or attaches to it, and sets it to RUNNING."""
        log = RunLog.start(
            self.home,
            record.log,
            uri=self.uri,
            experiment=record.experiment,
            name=record.name,
            owner=record.id,
            params=params,
            tags={Tag.ID: record.id, Tag.NAME: record.name, Tag.KIND: kind, **tags},
            source=self.source,
        )
        log.set_state(State.RUNNING)
        return log

    def usable_id(self, name: str) -> str:
        """Returns an id for the log of the run `name`: the first usable one of `NAME`, `NAME-2` and so on."""
        ids = (name if number == 1 else f"{name}-{number}" for number in count(1))
        return next(id for id in ids if is_usable(self.home, id, self.uri))


def _notes_tag(data: DatasetInfo) -> dict[str, str]:
    """Returns the tag with the notes of a data set; the last notes are left out if it would be too long."""
    lengths = accumulate(len(json.dumps(note)) for note in data.notes)
    notes = [note for note, length in zip(data.notes, lengths, strict=True) if length <= MAX_NOTES]
    return {Tag.DATA_NOTES: json.dumps(notes)} if notes else {}


def _minimized_metrics() -> str:
    """Returns the names of all metrics for which lower is better, as JSON for readers without the metrics."""
    metrics = [metric for metric in registry("metrics").values() if metric.mode == "min"]
    return json.dumps([name for m in metrics for name in (m.name, *([f"{m.name}_*"] * m.per_aspect))])
