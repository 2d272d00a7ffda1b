"""Records and ledgers of a home, written and read as commands do."""

import json
from pathlib import Path
from typing import Any

from mlcl.service.engine.ledger import Ledger
from mlcl.store import Database, RunFolder, State, home_records


def events(home: Path) -> list[dict[str, Any]]:
    """The events of the one sweep or table of a home, as they are while its command runs; none before."""
    for _, record in home_records(home):
        if record.kind != "runs":
            return Database(home).events(record.number)[0]
    return []


def rewrite(home: Path, changed: list[dict[str, Any]]) -> None:
    """Replaces the events of the one sweep or table of a home."""
    (number,) = (record.number for _, record in home_records(home) if record.kind != "runs")
    database, last = Database(home), ""
    with database._connected("rw") as connection:
        connection.execute("DELETE FROM events WHERE run = ?", (number,))
    with database.transaction() as write:
        write.change_run(number, last_event="")
    for event in changed:
        with database.transaction() as write:
            last = write.add_event(number, json.dumps(event), after=last)


def recorded(folder: RunFolder, state: State = State.RUNNING, **fields: str) -> RunFolder:
    """The folder with a record in this state."""
    usual = {"experiment": "exp", "job_hash": "j", "fingerprint": "d", "log": folder.path.name, "uri": "uri"}
    folder.open(**{**usual, **fields})
    folder.set_state(state)
    return folder


def new_ledger(folder: Path) -> Ledger:
    """The empty ledger of a sweep in `folder`, which is `HOME/sweeps/ID`."""
    recorded(RunFolder(folder))
    return Ledger(folder)
