"""Sends logs to MLflow, from one thread of a command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from mlcl.tracking.atomic_files import LOOK_EVERY, locked
from mlcl.tracking.cursor import LOCK, Cursor, run_id_of
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.outage import Outage
from mlcl.tracking.sender import Refused, Sender, refusal
from mlcl.tracking.tracker import Tracker
from mlcl.tracking.undelivered import pending_entries, undelivered

POLL = 0.5
"""Seconds between two reads of the logs."""
MAX_PAUSE = 5.0
"""Longest pause, in seconds, between two tries while MLflow does not answer."""
JOIN_SECONDS = 5.0
"""Seconds that the last request may take after the command has ended."""


class Delivery:
    """Delivers logs in the background while the context is open; `drain` waits until all are delivered.

    One process at a time delivers a log. A later command delivers what is left at the end.
    """

    def __init__(self, tracker: Tracker, announce: Callable[[str], None] = lambda _: None) -> None:
        self._tracker, self._announce = tracker, announce
        self._home = tracker.home
        self._guard = threading.Lock()
        self._ids: dict[str, bool] = {}  # in order of turns; True for a log of an earlier command
        self._scans: list[bool] = []  # searches for undelivered logs, each with or without refused ones
        self._elsewhere: set[str] = set()  # logs that another process delivers
        self._done: dict[str, int] = {}  # delivered logs with their sizes: a log that grows was reopened
        self._senders: dict[str, tuple[Sender, ExitStack]] = {}  # with the locks of their logs
        self._outage = Outage(announce)
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="delivery", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._wake.set()
        self._thread.join(JOIN_SECONDS)

    def add(self, id: str) -> None:
        """Delivers a log of this command, now and as it grows."""
        with self._guard:
            self._ids[id] = False
        self._wake.set()

    def add_left(self, *, refused: bool = False) -> None:
        """Delivers the logs of earlier commands for this store; with `refused` also those MLflow refused."""
        with self._guard:
            self._scans.append(refused)
        self._wake.set()

    def run_id(self, id: str) -> str | None:
        """The id of the log's run in MLflow; None until the run is created."""
        return run_id_of(self._home, id)

    def wait_run_id(self, id: str, timeout: float) -> str | None:
        """The same, after a wait of up to `timeout` seconds."""
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
        while (self._scans or self._pending()) and self._thread.is_alive():
            now, failing = time.monotonic(), self._outage.since
            if asked is None and stop():
                asked = now
            hurried = asked is not None and (failing is not None or now - asked > patience)
            if hurried or (failing is not None and now - max(failing, began) > patience):
                break
            time.sleep(LOOK_EVERY)
        return self._pending()

    def _pending(self) -> int:
        """The number of logs with undelivered entries that no other process delivers."""
        with self._guard:
            ids = self._ids.keys() - self._elsewhere
        folders = [log_folder(self._home, id) for id in ids if not self._is_done(id)]
        return sum(pending_entries(folder, Cursor.read(folder)) > 0 for folder in folders)

    def _is_done(self, id: str) -> bool:
        return id in self._done and (log_folder(self._home, id) / LOG).stat().st_size == self._done[id]

    def _work(self) -> None:
        pause = POLL
        try:
            while not self._ended.is_set():
                try:
                    self._round()
                    pause = POLL
                except Exception as error:  # the logs are kept, and the next try may succeed
                    reason = " ".join(self._tracker.safe(f"{type(error).__name__}: {error}").split())[:300]
                    self._outage.failed(reason)
                    pause = min(2 * pause, MAX_PAUSE)
                self._wake.wait(pause)
                self._wake.clear()
        finally:
            for id in list(self._senders):
                self._release(id)

    def _round(self) -> None:
        """Delivers each log in turn. Ends at the first log that fails, which is the last one next time."""
        self._scan()
        for id in list(self._ids):
            if self._ended.is_set():
                return
            if self._is_done(id):
                continue
            try:
                self._deliver(id)
            except Exception as error:
                reason = refusal(error)
                if reason is None:
                    with self._guard:
                        self._ids[id] = self._ids.pop(id)
                    raise
                self._put_aside(id, self._tracker.safe(reason))

    def _scan(self) -> None:
        while self._scans:
            for log in undelivered(self._home, self._tracker.uri):
                if not log.locked and (self._scans[0] or not log.reason):
                    with self._guard:
                        self._ids.setdefault(log.id, True)
            self._scans.pop(0)

    def _deliver(self, id: str) -> None:
        sender = self._sender(id)
        mine = sender is not None and self._has_parent(sender)
        with self._guard:
            (self._elsewhere.discard if mine else self._elsewhere.add)(id)
        if sender is None or not mine:
            return
        before, asked = sender.cursor.position, False
        for _ in sender.deliver():
            asked = True
            if sender.cursor.position != before:
                # An answer alone does not end an outage: the next request for the same entry may always fail.
                self._outage.answered()
            if self._ended.is_set():
                return
        if asked:
            self._outage.answered()
        earlier = self._ids.get(id, True)
        if sender.cursor.ended or earlier:
            self._release(id)
            self._done[id] = sender.cursor.offset
        if earlier:
            with self._guard:
                self._ids.pop(id, None)

    def _sender(self, id: str) -> Sender | None:
        """The log's sender; None while another process has its lock."""
        if id not in self._senders:
            lock = ExitStack()
            if not lock.enter_context(locked(log_folder(self._home, id) / LOCK)):
                return None
            self._senders[id] = (Sender(self._tracker, id, self._announce), lock)
        return self._senders[id][0]

    def _has_parent(self, sender: Sender) -> bool:
        """Delivers the parent log first. False while another process does. Raises Refused without a run."""
        parent = sender.parent
        if parent is None or self.run_id(parent) is not None:
            return True
        self._deliver(parent)
        if self.run_id(parent) is None and parent not in self._elsewhere:
            raise Refused(f"the log that it is nested in, {parent}, has no run")
        return self.run_id(parent) is not None

    def _release(self, id: str) -> None:
        if id in self._senders:
            self._senders.pop(id)[1].close()

    def _put_aside(self, id: str, reason: str) -> None:
        """Marks a log that MLflow refuses, and goes on with the others."""
        if id in self._senders:
            cursor = self._senders[id][0].cursor
            cursor.undeliverable = reason
            cursor.write(log_folder(self._home, id))
        self._release(id)
        with self._guard:
            self._ids.pop(id, None)
        self._announce(f"MLflow does not take the log {id} ({reason}); it is kept")


def deliver_all(home: Path, uri: str, announce: Callable[[str], None] = lambda _: None) -> int:
    """Delivers every log for this store, also refused ones. Returns the number of undelivered logs.

    Raises UserError where the store does not answer.
    """
    with Delivery(Tracker(home, uri), announce) as delivery:
        delivery.add_left(refused=True)
        delivery.drain()
    return len(undelivered(home, uri))
