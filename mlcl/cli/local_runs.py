"""The runs, sweeps and tables of a home, read from its files alone."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mlcl.errors import UserError, did_you_mean
from mlcl.service.engine.ledger import Ledger
from mlcl.store import RunFolder, RunRecord, home_records
from mlcl.tracking import State
from mlcl.tracking.jsonl import first_entry
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.names import TABLE_JSON

LAST = "@last"


@dataclass(frozen=True)
class LocalRun:
    """A run, sweep or table (`kind`); `name` is what stands for it, `best` its figure in words."""

    kind: str
    id: str
    name: str
    state: str
    created: str
    folder: Path
    best: str

    @property
    def age(self) -> str:
        """The time since its begin: `5m`, `3h`, `12d`."""
        began = datetime.strptime(self.created[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
        minutes = max(0, int((datetime.now(UTC) - began).total_seconds() // 60))
        days, hours = minutes // 1440, minutes // 60
        return f"{days}d" if days else f"{hours}h" if hours else f"{minutes}m"


def local_runs(home: Path) -> list[LocalRun]:
    """All of a home, the latest first; the runs of a table's cells are its own."""
    return [
        _read(home, folder, record)
        for folder, record in home_records(home)
        if _kind(folder) != "run" or not first_entry(log_folder(home, record.log) / LOG).get("parent")
    ]


def local_run(home: Path, word: str) -> LocalRun:
    """Finds one by name or id, by its beginning, or the latest (`@last`). Raises UserError for none."""
    known = local_runs(home)
    if word == LAST and known:
        return known[0]
    exact = [its for its in known if word in (its.name, its.id)]
    begun = exact or [its for its in known if its.name.startswith(word) or its.id.startswith(word)]
    names = list(dict.fromkeys(its.name for its in begun))
    if len(names) > 1:
        raise UserError("begins several names", key="NAME", found=word, allowed=names)
    if not begun:
        hint = did_you_mean(word, {its.name for its in known})
        raise UserError(
            f"names nothing here{hint}", key="NAME", found=word, allowed=f"a name of `mlcl list`, {LAST}"
        )
    return begun[0]


def _kind(folder: RunFolder) -> str:
    return folder.path.parent.name.removesuffix("s")


def _read(home: Path, folder: RunFolder, record: RunRecord) -> LocalRun:
    kind, state = _kind(folder), str(record.state)
    if record.state is State.RUNNING and not folder.is_owned:
        state = "KILLED"
    best = ""
    with suppress(UserError, OSError, ValueError, KeyError):
        best = {"run": _run, "sweep": _sweep, "table": _table}[kind](home, folder.path, record)
    return LocalRun(kind, record.id, record.name or record.id, state, record.created, folder.path, best)


def _run(home: Path, folder: Path, record: RunRecord) -> str:
    metric = first_entry(log_folder(home, record.log) / LOG)["params"]["evaluation.metric"]
    return f"{metric} {json.loads((folder / 'result.json').read_text())[metric]:.4f}"


def _sweep(_home: Path, folder: Path, _record: RunRecord) -> str:
    ledger = Ledger(folder)
    scores = [
        each.score for each in ledger.counted() if each.state is State.COMPLETE and each.score is not None
    ]
    best = max if ledger.head["modes"][0] == "max" else min
    return f"{ledger.head['scores'][0]} {best(scores):.4f}"


def _table(_home: Path, folder: Path, _record: RunRecord) -> str:
    figures = [
        its for cell in json.loads((folder / TABLE_JSON).read_text())["cells"] for its in cell["figures"]
    ]
    there = sum(None not in its["values"] for its in figures)
    return f"{there} of {len(figures)} figures"
