"""The logs that a command delivers, in turns, and the locks that it holds for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

from mlcl.files import locked
from mlcl.tracking.cursor import LOCK, Cursor, run_id_of
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.outage import Outage
from mlcl.tracking.sender import Refused, Sender, refusal
from mlcl.tracking.tracker import Tracker
from mlcl.tracking.undelivered import pending_entries, undelivered


class DeliveryQueue:
    """Logs to deliver. One thread calls `deliver` and `close`; any thread may call the other methods."""

    def __init__(self, tracker: Tracker, announce: Callable[[str], None] = lambda _: None) -> None:
        self.outage = Outage(announce)
        self._tracker, self._announce = tracker, announce
        self._home = tracker.home
        self._guard = threading.Lock()
        self._ids: dict[str, bool] = {}  # in order of turns; True for a log of an earlier command
        self._scans: list[bool] = []  # searches for undelivered logs, each with or without refused ones
        self._elsewhere: set[str] = set()  # logs that another process delivers
        self._done: dict[str, int] = {}  # delivered logs with their sizes: a log that grows was reopened
        self._senders: dict[str, tuple[Sender, ExitStack]] = {}  # with the locks of their logs

    def add(self, id: str) -> None:
        """Adds a log of this command, which may still grow."""
        with self._guard:
            self._ids[id] = False

    def add_undelivered(self, *, refused: bool = False) -> None:
        """Adds the logs of earlier commands for this store; with `refused` also those MLflow refused."""
        with self._guard:
            self._scans.append(refused)

    def is_empty(self) -> bool:
        """Whether there is nothing to deliver."""
        return not self._scans and not self.pending()

    def pending(self) -> int:
        """The number of logs with undelivered entries that no other process delivers."""
        with self._guard:
            ids = self._ids.keys() - self._elsewhere
        folders = [log_folder(self._home, id) for id in ids if not self._is_done(id)]
        return sum(pending_entries(folder, Cursor.read(folder)) > 0 for folder in folders)

    def _is_done(self, id: str) -> bool:
        return id in self._done and (log_folder(self._home, id) / LOG).stat().st_size == self._done[id]

    def deliver(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Delivers each log in turn, until `stop` returns True. Raises what MLflow raises.

        A log that fails ends the round and is the last one of the next. A log that MLflow refuses is put
        aside.
        """
        self._scan()
        for id in list(self._ids):
            if stop():
                return
            if self._is_done(id):
                continue
            try:
                self._deliver(id, stop)
            except Exception as error:
                reason = refusal(error)
                if reason is None:
                    with self._guard:
                        self._ids[id] = self._ids.pop(id)
                    raise
                self._put_aside(id, self._tracker.safe(reason))

    def close(self) -> None:
        """Releases all logs."""
        for id in list(self._senders):
            self._release(id)

    def _scan(self) -> None:
        while self._scans:
            for log in undelivered(self._home, self._tracker.uri):
                if not log.locked and (self._scans[0] or not log.reason):
                    with self._guard:
                        self._ids.setdefault(log.id, True)
            self._scans.pop(0)

    def _deliver(self, id: str, stop: Callable[[], bool]) -> None:
        sender = self._sender(id)
        mine = sender is not None and self._has_parent(sender, stop)
        with self._guard:
            (self._elsewhere.discard if mine else self._elsewhere.add)(id)
        if sender is None or not mine:
            return
        before, asked = sender.cursor.position, False
        for _ in sender.deliver():
            asked = True
            if sender.cursor.position != before:
                # An answer alone does not end an outage: the next request for the same entry may always fail.
                self.outage.answered()
            if stop():
                return
        if asked:
            self.outage.answered()
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

    def _has_parent(self, sender: Sender, stop: Callable[[], bool]) -> bool:
        """Delivers the parent log first. False while another process does. Raises Refused without a run."""
        parent = sender.parent
        if parent is None or run_id_of(self._home, parent) is not None:
            return True
        self._deliver(parent, stop)
        if run_id_of(self._home, parent) is None and parent not in self._elsewhere:
            raise Refused(f"the log that it is nested in, {parent}, has no run")
        return run_id_of(self._home, parent) is not None

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
