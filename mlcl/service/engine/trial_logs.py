"""Starts the logs of a sweep's trainings, each nested where it belongs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlcl.config import load_job
from mlcl.service.engine.ledger import Entry, Group
from mlcl.service.engine.state_sync import log_id
from mlcl.service.runs.run_job import start_log
from mlcl.tracking import Provenance, RunLog
from mlcl.tracking.names import Tag
from mlcl.training.job_data import JobData

FRESH = ", fresh seeds"
"""How the name of a run that holds a setting's seeds ends: the trial of that name stands beside it."""


@dataclass(frozen=True)
class TrialLogs:
    """Where a sweep's logs go: their home, their store, where they come from, who delivers them."""

    sweep: str
    home: Path
    uri: str
    job_data: JobData
    source: Provenance
    deliver: Callable[[str], None]

    def start(self, opened: Entry | Group, free: tuple[str, ...]) -> None:
        """The log of a training, or of a confirmation that holds several, unless it has been started."""
        id = log_id(self.sweep, opened.key)
        if RunLog.find(self.home, id) is None:
            group = opened.group if isinstance(opened, Entry) else None
            start_log(
                self.home,
                self.uri,
                load_job(opened.job),
                self.job_data.dataset.info,
                id=id,
                name=opened.label if isinstance(opened, Entry) else f"{opened.label}{FRESH}",
                owner=self.sweep,
                source=self.source,
                parent=self.sweep if group is None else log_id(self.sweep, group),
                tags=_tags(opened),
                free=free,
            )
        self.deliver(id)


def _tags(opened: Entry | Group) -> dict[str, str]:
    if isinstance(opened, Entry) and opened.number is not None:
        return {Tag.KIND: "trial", Tag.KEY: opened.key, Tag.TRIAL: str(opened.number)}
    return {Tag.KIND: "confirmation", Tag.KEY: opened.key, Tag.ID: opened.label}
