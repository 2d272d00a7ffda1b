"""Copies the complete runs of another home, so that tables of this home do not train them again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from mlcl.errors import UserError
from mlcl.files import lock_file, new_file, new_folder, remove_partial
from mlcl.service.engine.closing import backed_up, recover
from mlcl.store import IMPORTING, KINDS, LOCK, Database, RunFolder, RunRecord, State, home_records
from mlcl.tracking.cursor import CURSOR
from mlcl.tracking.cursor import LOCK as DELIVERY_LOCK
from mlcl.tracking.log import LOG, first_entry, log_folder
from mlcl.tracking.uri import IN_HOME


def import_home(
    source: Path, home: Path, announce: Callable[[str], None] = lambda _: None
) -> list[RunRecord]:
    """Copies the complete runs, sweeps and tables of `source` that `home` lacks; returns their new records.

    Folders, events and logs are copied. A sweep or table that has grown in `source` since an earlier import,
    or a run that was completed there in a copy of `home`, is copied again, unless a command in `home` has
    changed it, too. In the latter case `announce` is called with its name; it is also called if a sweep of
    `home` has the name of a copied sweep, to which this name refers from then on.
    A log that was delivered to the MLflow database file of `source` is not yet delivered to that of `home`; a
    log that was delivered to a server is not sent again. After a killed import, the next one copies the rest.
    Raises UserError if `source` is `home` or has no database, or if another import into `home` is at work.
    """
    if source.resolve() == home.resolve() or not Database(source).file.is_file():
        allowed = "another folder that commands had as --home"
        raise UserError("no home to import from", key="HOME", found=source, allowed=allowed)
    Database(source).check()
    recover(home)
    with lock_file(home / IMPORTING) as locked, backed_up(home, announce):
        if not locked:
            raise UserError("another import into this home is running", file=home)
        for kind in ("logs", *KINDS):
            remove_partial(home / kind)
        return list(_copy_missing(source, home, announce))


def _copy_missing(source: Path, home: Path, announce: Callable[[str], None]) -> Iterator[RunRecord]:
    records = {record.id: (folder, record) for folder, record in home_records(home)}
    home_runs, source_runs = Database(home).runs(), Database(source).runs()
    complete_records = [pair for pair in home_records(source) if pair[1].state is State.COMPLETE]
    sweeps = {record.name: record.id for _, record in [*records.values()][::-1] if record.kind == "sweeps"}
    for folder, record in complete_records[::-1]:
        if record.id not in records:
            yield _copy_record(source, folder, record, home)
            if record.kind == "sweeps" and record.name in sweeps:
                announce(f"sweep {record.name}: its name now means the copy; yours is {sweeps[record.name]}")
            continue
        copy, old = records[record.id]
        digest, old_digest = source_runs[record.number]["last_event"], home_runs[old.number]["last_event"]
        is_run = record.kind == "runs"  # it has no events, but a log that only grows
        is_current = (
            old.state is State.COMPLETE
            if is_run
            else digest == old_digest or digest in _event_digests(home, old)
        )
        if is_current:
            continue
        with copy.try_lock() as locked:
            if locked and (
                _has_grown(source, home, old) if is_run else old_digest in _event_digests(source, record)
            ):
                yield _copy_record(source, folder, record, home, old)
                continue
        reason = "was changed in both homes" if locked else "is in use"
        announce(f"{record.kind.removesuffix('s')} {record.name or record.id} {reason}: not copied")


def _event_digests(home: Path, record: RunRecord) -> set[str]:
    return {digest for _, digest in Database(home).events(record.number)}


def _has_grown(source: Path, home: Path, record: RunRecord) -> bool:
    paths = [log_folder(root, record.log) / LOG for root in (source, home)]
    source_log, home_log = (path.read_bytes() if path.exists() else b"" for path in paths)
    return source_log.startswith(home_log)


def _copy_record(
    source: Path, folder: RunFolder, record: RunRecord, home: Path, old: RunRecord | None = None
) -> RunRecord:
    """Copies a record with folder and logs; `old` is its record in `home`, whose events it begins with."""
    target = RunFolder(home / record.kind / record.id)
    if old is None:  # a folder was left by an import that was killed before it wrote the record
        shutil.rmtree(target.path, ignore_errors=True)
    starts = {path.parent.name: first_entry(path) for path in sorted((source / "logs").glob(f"[!.]*/{LOG}"))}
    own_ids = [id for id, start in starts.items() if start.get("owner") == record.id]
    logs = list(dict.fromkeys(log for id in own_ids for log in _log_lineage(source, id)))
    for id in logs:
        _copy_log(source, id, home, renew=id in own_ids)
    _copy_folder(folder.path, target.path, [LOCK])
    fields = {name: value for name, value in asdict(record).items() if name != "number"}
    digests = set() if old is None else _event_digests(home, old)
    last = ""
    with Database(home).transaction() as write:
        if old is None:
            number = write.add_run(fields)
        else:
            write.change_run(number := old.number, **fields)
        for event, digest in Database(source).events(record.number):
            last = (
                digest if digest in digests else write.add_event(number, json.dumps(event), last_digest=last)
            )
    return target.written_record


def _copy_folder(origin: Path, target: Path, ignored_names: list[str]) -> None:
    """Copies a folder without the files `ignored_names`; in a target that exists, replaces its files."""
    ignore = shutil.ignore_patterns(*ignored_names)
    if target.exists():
        shutil.copytree(origin, target, dirs_exist_ok=True, ignore=ignore, copy_function=_replace_file)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(target) as partial_folder:
        shutil.copytree(origin, partial_folder, dirs_exist_ok=True, ignore=ignore)


def _replace_file(origin: str, target: str) -> None:
    with new_file(Path(target)) as partial_file:
        shutil.copy2(origin, partial_file)


def _log_lineage(home: Path, id: str) -> Iterator[str]:
    """Yields the ids of the logs in which log `id` is nested, the outermost first, and then `id`."""
    parent = first_entry(log_folder(home, id) / LOG).get("parent")
    if parent:
        yield from _log_lineage(home, parent)
    yield id


def _copy_log(source: Path, id: str, home: Path, *, renew: bool) -> None:
    """Copies log `id` if `home` lacks it; for a log of the MLflow file in `source`, without the cursor.

    With `renew`, the entries and files that an earlier import could not copy yet are added.
    """
    origin, target = log_folder(source, id), log_folder(home, id)
    if not origin.exists() or (target.exists() and not renew):
        return
    uri = str(first_entry(origin / LOG).get("uri", ""))
    # Logs only grow, so that the cursor that `home` has stays valid.
    without_cursor = target.exists() or uri.startswith(IN_HOME)
    _copy_folder(origin, target, [DELIVERY_LOCK, *([CURSOR] if without_cursor else [])])
