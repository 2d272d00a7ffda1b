"""Functions that write and read records and ledgers of a home as commands do."""

from pathlib import Path
from typing import Any

from mlcl.service.engine.ledger import Ledger
from mlcl.store import Database, RunFolder, State, home_records


def events(home: Path) -> list[dict[str, Any]]:
    """Returns the events of the only sweep or table of a home; empty before it has begun."""
    for _, record in home_records(home):
        if record.kind != "runs":
            return [event for event, _ in Database(home).events(record.number)]
    return []


def recorded(folder: RunFolder, state: State = State.RUNNING, **fields: str) -> RunFolder:
    """Gives the folder a record in this state, and returns it."""
    defaults = {
        "experiment": "exp",
        "job_hash": "j",
        "fingerprint": "d",
        "log": folder.path.name,
        "uri": "uri",
    }
    folder.open(**{**defaults, **fields})
    folder.set_state(state)
    return folder


def new_ledger(folder: Path) -> Ledger:
    """Returns the empty ledger of a sweep in `folder`, which is `HOME/sweeps/ID`."""
    recorded(RunFolder(folder))
    return Ledger(folder)
