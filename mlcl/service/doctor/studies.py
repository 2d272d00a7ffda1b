"""Checks for Optuna studies that differ from the ledger of their sweep or table."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import FrozenTrial

from mlcl.errors import UserError
from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.locks import free_folders, hold_locks
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import HEADS, Ledger
from mlcl.service.search.study import sync_study
from mlcl.service.search.study_storage import open_storage
from mlcl.store import LOCK
from mlcl.tracking import State
from mlcl.tracking.uri import sqlite_file, without_password

JOURNAL = "study.journal"
SQLITE = b"SQLite format 3"
"""Begins a file of SQLite."""

ANEW = {"sweep": "the sweep anew", "table": "the table anew"}


def find_study_differences(scope: Scope) -> Iterator[Finding]:
    """Trials that a synchronisation would change; it is tried on a copy of each study."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for folder in free_folders(scope.home):
        ledger = _readable(folder.path)
        if ledger is None or not ledger.searches:
            continue
        where = _where(scope, ledger.head, folder.path)
        if where is None:
            kept = ledger.head["study"]
            why = f"its study is kept in {kept} and was not looked at"
            yield Finding(str(folder.path), why, "give its URL as --study or MLCL_STUDY", note=True)
            continue
        if isinstance(where, Path) and not where.exists():
            kind = ledger.head["event"]
            yield Finding(
                str(where), f"the study of its {kind} is gone", f"restore it, or begin {ANEW[kind]}"
            )
            continue
        with _open_copy(where) as storage:
            for search in ledger.searches:
                for version in ledger.versions(search):
                    entries = ledger.trials(version.number, search)
                    yield from _compare(ledger, version.study, entries, storage, where)


def _readable(folder: Path) -> Ledger | None:
    """The ledger; None where there is none, and where it is damaged, which `records` finds."""
    try:
        ledger = Ledger(folder)
    except UserError:
        return None
    return ledger if ledger.head else None


def study_trials(
    scope: Scope, folder: Path, events: Sequence[Mapping[str, Any]]
) -> dict[str, list[FrozenTrial]]:
    """The trials that Optuna has of a ledger's spaces, by the name of their study."""
    heads = [event for event in events if event["event"] in HEADS]
    where = _where(scope, heads[0], folder) if heads else None
    found: dict[str, list[FrozenTrial]] = {}
    if where is None or (isinstance(where, Path) and not where.exists()):
        return found
    with _open_copy(where) as storage:
        names = optuna.get_all_study_names(storage)
        for event in events:
            if event["event"] == "generation" and event["study"] in names:
                study = optuna.load_study(study_name=event["study"], storage=storage)
                found[event["study"]] = study.trials
    return found


def own_trials(
    events: Sequence[Mapping[str, Any]], studies: Mapping[str, Sequence[FrozenTrial]]
) -> dict[str, list[FrozenTrial]]:
    """Those of `study_trials` by the scope of their search, without trials taken over from others."""
    found: dict[str, list[FrozenTrial]] = {}
    for event in events:
        if event["event"] == "generation":
            own = (trial for trial in studies.get(event["study"], ()) if "from" not in trial.user_attrs)
            found.setdefault(event.get("scope", ""), []).extend(own)
    return found


def _where(scope: Scope, head: Mapping[str, Any], folder: Path) -> Path | str | None:
    """The path of the study's file or the URL of its server; None where it is not known."""
    kept = head.get("study")  # a table keeps its own
    if not kept:
        return folder / JOURNAL
    if scope.study is None or without_password(scope.study) != kept:
        return None
    file = sqlite_file(scope.study)
    return file or (scope.study if "://" in scope.study else Path(scope.study))


@contextmanager
def _open_copy(where: Path | str) -> Iterator[BaseStorage]:
    """Opens the storage for reading; of a file it opens a copy, because opening may write."""
    if isinstance(where, str):
        yield open_storage(where)
        return
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(shutil.copy(where, scratch))
        yield open_storage(_address(copy))


def _address(where: Path | str) -> Path | str:
    """The path of a journal, or the URL of an SQLite file or a server."""
    if isinstance(where, str):
        return where
    with where.open("rb") as file:
        return f"sqlite:///{where}" if file.read(len(SQLITE)) == SQLITE else where


def _compare(
    ledger: Ledger, name: str, entries: Sequence[Entry], storage: BaseStorage, where: Path | str
) -> Iterator[Finding]:
    kind = ledger.head["event"]
    if name not in optuna.get_all_study_names(storage):
        if entries:
            place = without_password(str(where))
            why = f"{place} has no such study, and the {kind} has {len(entries)} trials of it"
            yield Finding(f"study {name}", why, f"restore it, or begin {ANEW[kind]}")
        return
    copy = InMemoryStorage()
    optuna.copy_study(from_study_name=name, from_storage=storage, to_storage=copy)
    study = optuna.load_study(study_name=name, storage=copy)
    for entry in entries:
        what, before = f"{entry.label} of study {name}", _trial(study, entry)
        try:
            sync_study(study, entry)
        except (RuntimeError, KeyError) as error:
            why = f"contradicts the {kind}: {error}"
            yield Finding(what, why, "none: what a study was told for good cannot be taken back")
            continue
        after = _trial(study, entry)
        if (
            after is not None
            and after.state.name == entry.state == State.COMPLETE
            and after.values != entry.values
        ):
            why = f"Optuna has {after.values}, and the {kind} {entry.values}: one of them was changed"
            yield Finding(what, why, "restore the one that was changed")
        if before != after and before is not None and after is not None:
            why = f"is {before.state.name} in Optuna, and {entry.state} in the {kind}"
            if before.state is after.state:
                why = f"Optuna has not been told all of it ({entry.state})"
            yield Finding(what, why, "told again", partial(_tell, ledger.folder, name, where, entry.key))


def _trial(study: optuna.Study, entry: Entry) -> FrozenTrial | None:
    trials = study.get_trials()
    number = entry.study_number
    return trials[number] if number is not None and number < len(trials) else None


def _tell(folder: Path, name: str, where: Path | str, key: str) -> None:
    with hold_locks(folder / LOCK) as mine:
        if mine:
            study = optuna.load_study(study_name=name, storage=open_storage(_address(where)))
            sync_study(study, Ledger(folder).entries[key])
