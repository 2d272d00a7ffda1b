"""Sends logs to MLflow, from one thread of a command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from mlflow import MlflowClient
from mlflow.entities import ViewType
from mlflow.exceptions import MlflowException

from mlcl.files import LOOK_EVERY, locked
from mlcl.tracking.cursor import LOCK, Cursor, delivered_logs, pending_entries, run_id_of, undelivered_logs
from mlcl.tracking.jsonl import first_entry
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.names import Tag
from mlcl.tracking.sender import Refused, Sender, refusal
from mlcl.tracking.tracker import Tracker

POLL = 0.5
"""Seconds between two reads of the logs."""
MAX_PAUSE = 5.0
"""Longest pause, in seconds, between two tries while MLflow does not answer."""
JOIN_SECONDS = 5.0
"""Seconds that the last request may take after the command has ended."""
ANNOUNCE_AFTER = 2
"""Failures in a row after which an outage is announced: a busy store may refuse a single request."""


@dataclass
class _QueuedLog:
    """A log to deliver. It has a sender while this process holds its lock."""

    id: str
    folder: Path
    earlier: bool
    """Whether it is of an earlier command: such a log does not grow."""
    failures: int = 0
    elsewhere: bool = False
    """Another process delivers it."""
    end: int = -1
    """Its size when its lock was released: a log that grows behind its end goes on."""
    sender: Sender | None = None
    lock: ExitStack = field(default_factory=ExitStack)

    @property
    def is_delivered(self) -> bool:
        return self.end >= 0 and (self.earlier or (self.folder / LOG).stat().st_size == self.end)

    def release(self) -> None:
        self.lock.close()
        self.sender = None


class Delivery:
    """Delivers logs in the background while the context is open; `drain` waits until all are delivered.

    One process at a time delivers a log. A later command delivers what is left at the end.
    """

    def __init__(self, tracker: Tracker, announce: Callable[[str], None] = lambda _: None) -> None:
        self._tracker, self._home, self._announce = tracker, tracker.home, announce
        self._logs: dict[str, _QueuedLog] = {}
        self._scans: list[bool] = []
        """Searches for undelivered logs, each with or without refused ones."""
        self._failures, self._failing_since = 0, 0.0
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="delivery", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._wake.set()
        self._thread.join(JOIN_SECONDS)

    def add(self, id: str) -> None:
        """Delivers a log of this command, now and as it grows."""
        self._add(id, earlier=False)
        self._wake.set()

    def add_undelivered(self, *, refused: bool = False) -> None:
        """Delivers the logs of earlier commands for this store; with `refused` also those MLflow refused."""
        self._scans.append(refused)
        self._wake.set()

    def _add(self, id: str, *, earlier: bool) -> None:
        """Adds a log behind those that it is nested in: their runs must be there first."""
        folder = log_folder(self._home, id)
        parent = first_entry(folder / LOG).get("parent")
        if parent and parent not in self._logs and run_id_of(self._home, parent) is None:
            self._add(parent, earlier=True)
        log = self._logs.setdefault(id, _QueuedLog(id, folder, earlier))
        log.earlier = log.earlier and earlier

    def run_id(self, id: str) -> str | None:
        """The id of the log's run in MLflow; None until the run is created."""
        return run_id_of(self._home, id)

    def wait_run_id(self, id: str, timeout: float) -> str | None:
        """The id of the log's run in MLflow, after a wait of up to `timeout` seconds."""
        end = time.monotonic() + timeout
        self._wake.set()
        while (found := self.run_id(id)) is None and time.monotonic() < end and self._thread.is_alive():
            time.sleep(LOOK_EVERY)
        return found

    def drain(self, patience: float = 10.0, stop: Callable[[], bool] = lambda: False) -> int:
        """Waits until everything is delivered; returns the number of logs that are not.

        Gives up when MLflow has not answered for `patience` seconds. After `stop` has returned True, gives
        up at the first failure, and in any case after `patience` seconds.
        """
        began, asked = time.monotonic(), None
        self._wake.set()
        while (self._scans or self.pending()) and self._thread.is_alive():
            now, failing = time.monotonic(), self._failures > 0
            if asked is None and stop():
                asked = now
            hurried = asked is not None and (failing or now - asked > patience)
            if hurried or (failing and now - max(self._failing_since, began) > patience):
                break
            time.sleep(LOOK_EVERY)
        return self.pending()

    def pending(self) -> int:
        """The number of logs with undelivered entries that no other process delivers."""
        waiting = [log for log in list(self._logs.values()) if not log.elsewhere and not log.is_delivered]
        return sum(pending_entries(log.folder, Cursor.read(log.folder)) > 0 for log in waiting)

    def _work(self) -> None:
        pause = POLL
        while not self._ended.is_set():
            try:
                self.deliver()
                pause = POLL
            except Exception as error:  # the logs are kept, and the next try may succeed
                self._failed(" ".join(self._tracker.safe(f"{type(error).__name__}: {error}").split())[:300])
                pause = min(2 * pause, MAX_PAUSE)
            self._wake.wait(pause)
            self._wake.clear()
        self.release()

    def deliver(self) -> None:
        """Delivers each log in turn, until the context ends. Raises what MLflow raises.

        A log that fails ends the round and comes later in the next. A log that MLflow refuses is put aside.
        """
        while self._scans:
            self._forget_lost_runs()
            for found in undelivered_logs(self._home, self._tracker.uri):
                if not found.locked and (self._scans[0] or not found.refusal):
                    self._add(found.id, earlier=True)
            self._scans.pop(0)
        for log in sorted(self._logs.values(), key=lambda log: log.failures):
            try:
                sender = None if log.is_delivered else self._sender(log)
                if sender is None:
                    continue
                for _ in sender.deliver():
                    self._answered()
                    if self._ended.is_set():
                        return
            except Exception as error:
                reason = refusal(error)
                if reason is None:
                    log.failures += 1
                    raise
                self._put_aside(log, self._tracker.safe(reason))
                continue
            if sender.cursor.ended or log.earlier:
                log.end = sender.cursor.offset
                log.release()

    def _forget_lost_runs(self) -> None:
        """Resets the cursors of logs whose runs went with a store that was deleted: they are sent again."""
        for id in lost_logs(self._home, self._tracker.uri, self._tracker.client):
            folder = log_folder(self._home, id)
            with locked(folder / LOCK) as mine:
                # Read again: another command may have done it a moment ago.
                run_id = Cursor.read(folder).run_id
                if mine and run_id is not None and not has_run(self._tracker.client, run_id):
                    Cursor().write(folder)

    def _sender(self, log: _QueuedLog) -> Sender | None:
        """The log's sender; None while another process has its lock, or its parent has no run yet.

        Raises Refused where the parent will have none.
        """
        if log.sender is None:
            log.elsewhere = not log.lock.enter_context(locked(log.folder / LOCK))
            if log.elsewhere:
                log.release()
                return None
            log.sender = Sender(self._tracker, log.id, self._announce)
        parent = log.sender.parent
        if parent is None or self.run_id(parent) is not None:
            return log.sender
        above = self._logs.get(parent)
        if above is None or above.is_delivered:
            raise Refused(f"the log that it is nested in, {parent}, has no run")
        log.elsewhere = above.elsewhere
        return None

    def _put_aside(self, log: _QueuedLog, reason: str) -> None:
        """Marks a log that MLflow refuses, and goes on with the others."""
        if log.sender is not None:
            log.sender.cursor.undeliverable = reason
            log.sender.cursor.write(log.folder)
        log.release()
        self._logs.pop(log.id)
        self._announce(f"MLflow does not take the log {log.id} ({reason}); it is kept")

    def release(self) -> None:
        """Lets other processes deliver the logs."""
        for log in self._logs.values():
            log.release()

    def _failed(self, reason: str) -> None:
        if self._failures == 0:
            self._failing_since = time.monotonic()
        self._failures += 1
        if self._failures == ANNOUNCE_AFTER:
            self._announce(f"MLflow does not answer ({reason}); logs are kept and delivered later")

    def _answered(self) -> None:
        """Ends an outage: an entry was delivered. One request is no proof, the next one may always fail."""
        if self._failures >= ANNOUNCE_AFTER:
            self._announce("MLflow answers again; logs are being delivered")
        self._failures = 0


def lost_logs(home: Path, uri: str, client: MlflowClient) -> list[str]:
    """The ids of the logs that were delivered to a store of this address which was deleted or replaced.

    Such a store has no run of mlcl at all, not even a deleted one; else there are none.
    """
    every = [each.experiment_id for each in client.search_experiments(ViewType.ALL)]
    if every and client.search_runs(every, f"tags.`{Tag.LOG}` != ''", ViewType.ALL, max_results=1):
        return []
    return delivered_logs(home, uri)  # last: it reads a file of every log


def has_run(client: MlflowClient, run_id: str) -> bool:
    """Whether MLflow has a run, if only a deleted one. Raises MlflowException where it does not say."""
    try:
        client.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False
    return True


def deliver_all(home: Path, uri: str, announce: Callable[[str], None] = lambda _: None) -> int:
    """Delivers every log of the home that is for the store `uri`, also logs that it has refused before.

    Returns the number of logs that stay undelivered. `announce` gets notes for the user. Raises UserError
    where the store does not answer.
    """
    with Delivery(Tracker(home, uri), announce) as delivery:
        delivery.add_undelivered(refused=True)
        delivery.drain()
    return len(undelivered_logs(home, uri))
