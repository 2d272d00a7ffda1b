"""What a killed process left RUNNING is closed by the next command under the same home."""

from __future__ import annotations

from pathlib import Path

from mlcl.service.folders import RunFolder, RunFolders, RunRecord
from mlcl.tracking import State, Tracker

KILLED = "its process was killed"


def close_orphans(tracker: Tracker, home: Path) -> None:
    """Runs become STOPPED, for the same command goes on with them; sweeps and their trials FAILED.

    A living process holds its folder's lock, so nothing that runs is touched.
    """
    for kind, state in (("runs", State.STOPPED), ("sweeps", State.FAILED)):
        for folder, record in RunFolders(home, kind).records():
            if record.state is State.RUNNING and record.tracking_uri == tracker.uri:
                _close(tracker, folder, record, state)


def _close(tracker: Tracker, folder: RunFolder, record: RunRecord, state: State) -> None:
    with folder.owned() as free:
        if not free:
            return
        for run_id in tracker.running(record.experiment, record.id):
            log = tracker.attach(run_id)
            if log is not None:
                log.finish(state, KILLED)
        folder.set_state(state)
