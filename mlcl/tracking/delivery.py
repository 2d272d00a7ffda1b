"""Sends logs to MLflow from a background thread of a command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import ViewType
from typing_extensions import Self

from mlcl.files import LOOK_EVERY, lock_file
from mlcl.tracking.cursor import LOCK, Cursor, delivered_logs, pending_entries, undelivered_logs
from mlcl.tracking.log import LOG, first_entry, log_folder
from mlcl.tracking.names import Tag
from mlcl.tracking.refusal import Refused, refusal
from mlcl.tracking.sender import Sender
from mlcl.tracking.tracker import Tracker, existing_run

POLL = 0.5
"""The number of seconds between two reads of the logs."""
MAX_PAUSE = 5.0
"""The longest pause between two attempts while MLflow does not answer, in seconds."""
JOIN_SECONDS = 5.0
"""The number of seconds that the last request may take after the command has ended."""
ANNOUNCE_AFTER = 2
"""The number of consecutive failures that are announced to the user: a busy store may fail once."""


@dataclass
class _QueuedLog:
    """A log to send. It has a sender while this process holds the log's lock."""

    id: str
    folder: Path
    earlier: bool
    """Whether an earlier command wrote the log, so that it does not grow any more."""
    failures: int = 0
    elsewhere: bool = False
    """Whether another process sends the log or its parent."""
    end: int = -1
    """The log's size when it was sent and its lock released, else -1. If it grows later, the rest is sent."""
    sender: Sender | None = None
    lock: ExitStack = field(default_factory=ExitStack)

    @property
    def is_delivered(self) -> bool:
        return self.end >= 0 and (self.earlier or (self.folder / LOG).stat().st_size == self.end)

    def count_pending(self) -> int:
        """Returns the number of entries to send: of an earlier log also those that were refused before."""
        cursor = Cursor.read(self.folder)
        return pending_entries(self.folder, cursor.unsent_offset if self.earlier else cursor.offset)

    def release(self) -> None:
        self.lock.close()
        self.sender = None


class Delivery:
    """Sends logs to MLflow in a background thread while the context is open; `drain` waits for them.

    Only one process at a time sends a log. A later command sends the entries that are not sent when the
    context ends.
    """

    def __init__(self, tracker: Tracker, announce: Callable[[str], None] = lambda _: None) -> None:
        self._tracker, self._home, self._announce = tracker, tracker.home, announce
        self._queued_logs: dict[str, _QueuedLog] = {}
        self._requested_scans: list[bool] = []
        """The requested scans for undelivered logs: one item each, True to include refused logs."""
        self._failure_count, self._failure_start = 0, 0.0
        self._announced_reasons: set[str] = set()
        """The announced reasons of refusals. A reason that many logs have in common is announced once."""
        self._wake_event, self._end_event = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._deliver_repeatedly, name="delivery", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end_event.set()
        self._wake_event.set()
        self._thread.join(JOIN_SECONDS)

    def add(self, id: str) -> None:
        """Adds a log of this command, whose present and later entries are sent."""
        self._queue_log(id, earlier=False)
        self._wake_event.set()

    def add_undelivered(self, *, include_refused: bool = False) -> None:
        """Adds the logs of earlier commands for this store, those that MLflow refused only if asked to."""
        self._requested_scans.append(include_refused)
        self._wake_event.set()

    def _queue_log(self, id: str, *, earlier: bool) -> None:
        """Adds a log after the logs of its parents: MLflow needs the parent runs first."""
        folder = log_folder(self._home, id)
        parent = first_entry(folder / LOG).get("parent")
        if parent and parent not in self._queued_logs and Cursor.of(self._home, parent).run_id is None:
            self._queue_log(parent, earlier=True)
        log = self._queued_logs.setdefault(id, _QueuedLog(id, folder, earlier))
        log.earlier = log.earlier and earlier

    def run_id(self, id: str) -> str | None:
        """Returns the id of the log's run in MLflow; None until the run is created."""
        return Cursor.of(self._home, id).run_id

    def wait_run_id(self, id: str, timeout: float) -> str | None:
        """Waits up to `timeout` seconds for the log's run in MLflow; returns its id or None."""
        end = time.monotonic() + timeout
        self._wake_event.set()
        while (run_id := self.run_id(id)) is None and time.monotonic() < end and self._thread.is_alive():
            time.sleep(LOOK_EVERY)
        return run_id

    def drain(self, patience: float = 10.0, stop: Callable[[], bool] = lambda: False) -> int:
        """Waits until all logs are sent; returns the number of logs that are not.

        The wait ends early if MLflow has not answered for `patience` seconds. Once `stop` has returned True,
        the wait ends at the first failure, or after `patience` seconds.
        """
        start, stop_time = time.monotonic(), None
        for log in list(self._queued_logs.values()):
            log.elsewhere = False  # the other process may have released it: the thread looks again
        self._wake_event.set()
        while (self._requested_scans or self.count_pending()) and self._thread.is_alive():
            now, outage = time.monotonic(), self._failure_count > 0
            if stop_time is None and stop():
                stop_time = now
            stopped = stop_time is not None and (outage or now - stop_time > patience)
            if stopped or (outage and now - max(self._failure_start, start) > patience):
                break
            time.sleep(LOOK_EVERY)
        return self.count_pending()

    def count_pending(self) -> int:
        """Returns the number of logs with unsent entries; logs that other processes send are not counted."""
        logs = [log for log in list(self._queued_logs.values()) if not log.elsewhere and not log.is_delivered]
        return sum(log.count_pending() > 0 for log in logs)

    def delivered_run(self, id: str) -> str | None:
        """Returns the id of the log's run in MLflow; None until each entry of the log was sent or refused."""
        folder = log_folder(self._home, id)
        cursor = Cursor.read(folder)
        return None if pending_entries(folder, cursor.offset) else cursor.run_id

    def _deliver_repeatedly(self) -> None:
        pause = POLL
        while not self._end_event.is_set():
            try:
                self.deliver()
                pause = POLL
            except Exception as error:  # the logs are kept, and the next try may succeed
                self._count_failure(
                    " ".join(self._tracker.hide_password(f"{type(error).__name__}: {error}").split())[:300]
                )
                pause = min(2 * pause, MAX_PAUSE)
            self._wake_event.wait(pause)
            self._wake_event.clear()
        self.release()

    def deliver(self) -> None:
        """Sends the new entries of each log in turn, until the context ends.

        In an outage raises MLflow's exception; the next call begins with the logs that have failed least. A
        log that MLflow will never accept is marked as undeliverable and left out.
        """
        while self._requested_scans:
            self._forget_lost_runs()
            for unsent_log in undelivered_logs(self._home, self._tracker.uri):
                if not unsent_log.locked and (self._requested_scans[0] or not unsent_log.refusal):
                    self._queue_log(unsent_log.id, earlier=True)
            self._requested_scans.pop(0)
        for log in sorted(self._queued_logs.values(), key=lambda log: log.failures):
            try:
                sender = None if log.is_delivered else self._open_sender(log)
                if sender is None:
                    continue
                for _ in sender.deliver():
                    self._reset_failures()
                    if sender.cursor.undeliverable:
                        self._announce_refusal(log, sender.cursor, "all of the log")
                    if self._end_event.is_set():
                        return
            except Exception as error:
                reason = refusal(error)
                if reason is None:
                    log.failures += 1
                    raise
                self._mark_undeliverable(log, self._tracker.hide_password(reason))
                continue
            # A log of an earlier command may be one that a living command has just started.
            if sender.cursor.ended or (log.earlier and not pending_entries(log.folder, sender.cursor.offset)):
                log.end = sender.cursor.offset
                log.release()

    def _forget_lost_runs(self) -> None:
        """Resets the cursors of logs whose runs were lost with a deleted store: they are sent again."""
        for id in lost_logs(self._home, self._tracker.uri, self._tracker.client):
            folder = log_folder(self._home, id)
            with lock_file(folder / LOCK) as locked:
                # Read again: another command may have reset it a moment ago.
                run_id = Cursor.read(folder).run_id
                if locked and run_id is not None and existing_run(self._tracker.client, run_id) is None:
                    Cursor().write(folder)

    def _open_sender(self, log: _QueuedLog) -> Sender | None:
        """Returns the log's sender; None while another process sends it, or its parent log has no run yet."""
        if log.sender is None:
            log.elsewhere = not log.lock.enter_context(lock_file(log.folder / LOCK))
            if log.elsewhere:
                log.release()
                return None
            log.sender = Sender(self._tracker, log.id, self._announce)
        parent = log.sender.parent
        if parent is None or self.run_id(parent) is not None:
            return log.sender
        parent_log = self._queued_logs.get(parent)
        if parent_log is None or parent_log.is_delivered:
            raise Refused(f"the log that it is nested in, {parent}, has no run")
        log.elsewhere = parent_log.elsewhere
        return None

    def _mark_undeliverable(self, log: _QueuedLog, reason: str) -> None:
        """Marks a log that MLflow refuses as undeliverable, removes it from the queue and announces it."""
        if log.sender is not None:
            cursor = log.sender.cursor
            cursor.try_again()
            cursor.undeliverable = reason
            cursor.write(log.folder)
            self._announce_refusal(log, cursor, "the log")
        log.release()
        self._queued_logs.pop(log.id)

    def _announce_refusal(self, log: _QueuedLog, cursor: Cursor, subject: str) -> None:
        """Announces a refusal, unless a refusal for the same reason was announced before."""
        reason = cursor.undeliverable
        if (text := reason.replace(str(cursor.run_id), "")) not in self._announced_reasons:
            self._announced_reasons.add(text)
            remedy = "it is kept, and `mlcl doctor` names it and others like it"
            self._announce(f"MLflow does not take {subject} {log.id} ({reason}); {remedy}")

    def release(self) -> None:
        """Releases the locks of all logs, so that other processes can send them."""
        for log in self._queued_logs.values():
            log.release()

    def _count_failure(self, reason: str) -> None:
        if self._failure_count == 0:
            self._failure_start = time.monotonic()
        self._failure_count += 1
        if self._failure_count == ANNOUNCE_AFTER:
            self._announce(f"MLflow does not answer ({reason}); logs are kept and delivered later")

    def _reset_failures(self) -> None:
        """Resets the count of failures after an entry was sent, and announces the end of an outage."""
        if self._failure_count >= ANNOUNCE_AFTER:
            self._announce("MLflow answers again; logs are being delivered")
        self._failure_count = 0


def lost_logs(home: Path, uri: str, client: MlflowClient) -> list[str]:
    """Returns the logs sent to this URI if the store there has lost them: it has no run of mlcl any more."""
    ids = [experiment.experiment_id for experiment in client.search_experiments(ViewType.ALL)]
    if ids and client.search_runs(ids, f"tags.`{Tag.LOG}` != ''", ViewType.ALL, max_results=1):
        return []
    return delivered_logs(home, uri)  # called last, since it reads a file of every log


def deliver_all(home: Path, uri: str, announce: Callable[[str], None] = lambda _: None) -> int:
    """Sends every log of the home for the store, also refused logs; returns how many stay undelivered."""
    with Delivery(Tracker(home, uri), announce) as delivery:
        delivery.add_undelivered(include_refused=True)
        delivery.drain()
    return len(undelivered_logs(home, uri))
