"""The one thread of a command that talks to MLflow: it sends what logs hold, as long as MLflow answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from mlcl.tracking.atomic_files import LOOK_EVERY, locked
from mlcl.tracking.cursor import LOCK, Cursor
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.sender import Refused, Sender, refusal
from mlcl.tracking.tracker import Tracker
from mlcl.tracking.undelivered import run_id_of, undelivered, waiting

POLL = 0.5
"""Seconds between looks at the logs."""
MAX_PAUSE = 5.0
"""Seconds between tries while MLflow does not answer, at most."""
FAREWELL = 5.0
"""Seconds that a last request may take once the command ends; what it would have sent is kept."""
TELL_AFTER = 2
"""Failures in a row that are worth a word: a busy store may refuse one."""


class Delivery:
    """Delivers logs in the background, from `with` to its end; use `drain` to wait for it.

    A log is delivered by one process at a time. What remains at the end is delivered by a later command.
    """

    def __init__(self, tracker: Tracker, announce: Callable[[str], None] = lambda _: None) -> None:
        self._tracker, self._announce = tracker, announce
        self._home = tracker.home
        self._guard = threading.Lock()
        self._ids: dict[str, bool] = {}  # in order of turns; True for a log that an earlier command left
        self._looks: list[bool] = []
        self._elsewhere: set[str] = set()
        self._done: dict[str, int] = {}  # the size at which a finished log was delivered: it may be reopened
        self._held: dict[str, tuple[Sender, ExitStack]] = {}
        self._failures = 0
        self._failing_since: float | None = None
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
        self._thread.join(FAREWELL)

    def add(self, id: str) -> None:
        """Delivers a log of this command's, now and as it grows."""
        with self._guard:
            self._ids[id] = False
        self._wake.set()

    def add_left(self, *, refused: bool = False) -> None:
        """Delivers what earlier commands left for this store; `refused`: also what MLflow did not take."""
        with self._guard:
            self._looks.append(refused)
        self._wake.set()

    def run_id(self, id: str) -> str | None:
        """The log's run in MLflow; None until it has been made."""
        return run_id_of(self._home, id)

    def wait_run_id(self, id: str, timeout: float) -> str | None:
        """The same, after waiting up to `timeout` seconds for it."""
        end = time.monotonic() + timeout
        self._wake.set()
        while (found := self.run_id(id)) is None and time.monotonic() < end and self._thread.is_alive():
            time.sleep(LOOK_EVERY)
        return found

    def drain(self, patience: float = 10.0, stop: Callable[[], bool] = lambda: False) -> int:
        """Waits until everything is delivered; returns how many logs are not.

        Gives up when MLflow has not answered for `patience` seconds. Once `stop` says so, at the first
        failure, and after `patience` seconds in any case.
        """
        began, asked = time.monotonic(), None
        self._wake.set()
        while (self._looks or self._left()) and self._thread.is_alive():
            now, failing = time.monotonic(), self._failing_since
            if asked is None and stop():
                asked = now
            hurried = asked is not None and (failing is not None or now - asked > patience)
            if hurried or (failing is not None and now - max(failing, began) > patience):
                break
            time.sleep(LOOK_EVERY)
        return self._left()

    def _left(self) -> int:
        """Logs with something to deliver that no other process is delivering."""
        with self._guard:
            ids = self._ids.keys() - self._elsewhere
        folders = [log_folder(self._home, id) for id in ids if not self._is_done(id)]
        return sum(waiting(folder, Cursor.read(folder)) > 0 for folder in folders)

    def _is_done(self, id: str) -> bool:
        return id in self._done and (log_folder(self._home, id) / LOG).stat().st_size == self._done[id]

    def _work(self) -> None:
        pause = POLL
        try:
            while not self._ended.is_set():
                try:
                    self._round()
                    pause = POLL
                except Exception as error:  # whatever it is, the logs are kept and the next try may do
                    self._failed(error)
                    pause = min(2 * pause, MAX_PAUSE)
                self._wake.wait(pause)
                self._wake.clear()
        finally:
            for id in list(self._held):
                self._release(id)

    def _round(self) -> None:
        """Every log's turn. Ends at the first that MLflow does not answer for; the others are first then."""
        self._look_for_left()
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

    def _look_for_left(self) -> None:
        while self._looks:
            for log in undelivered(self._home, self._tracker.uri):
                if not log.locked and (self._looks[0] or not log.reason):
                    with self._guard:
                        self._ids.setdefault(log.id, True)
            self._looks.pop(0)

    def _deliver(self, id: str) -> None:
        sender = self._sender(id)
        mine = sender is not None and self._has_parent(sender)
        with self._guard:
            (self._elsewhere.discard if mine else self._elsewhere.add)(id)
        if sender is None or not mine:
            return
        came, asked = sender.cursor.place, False
        for _ in sender.deliver():
            asked = True
            if sender.cursor.place != came:
                # Only what is got rid of counts: the first of an entry's requests may do, and the next never.
                self._answered()
            if self._ended.is_set():
                return
        if asked:
            self._answered()
        left = self._ids.get(id, True)
        if sender.cursor.ended or left:
            self._release(id)
            self._done[id] = sender.cursor.offset
        if left:
            with self._guard:
                self._ids.pop(id, None)

    def _sender(self, id: str) -> Sender | None:
        """The log's sender; None while another process has its lock."""
        if id not in self._held:
            lock = ExitStack()
            if not lock.enter_context(locked(log_folder(self._home, id) / LOCK)):
                return None
            self._held[id] = (Sender(self._tracker, id, self._announce), lock)
        return self._held[id][0]

    def _has_parent(self, sender: Sender) -> bool:
        """Delivers the parent first. False while another process does. Raises Refused if it has no run."""
        parent = sender.parent
        if parent is None or self.run_id(parent) is not None:
            return True
        self._deliver(parent)
        if self.run_id(parent) is None and parent not in self._elsewhere:
            raise Refused(f"the log that it is nested in, {parent}, has no run")
        return self.run_id(parent) is not None

    def _release(self, id: str) -> None:
        if id in self._held:
            self._held.pop(id)[1].close()

    def _put_aside(self, id: str, reason: str) -> None:
        """A log that MLflow refuses must not keep the others from being delivered."""
        if id in self._held:
            cursor = self._held[id][0].cursor
            cursor.undeliverable = reason
            cursor.write(log_folder(self._home, id))
        self._release(id)
        with self._guard:
            self._ids.pop(id, None)
        self._announce(f"MLflow does not take the log {id} ({reason}); it is kept")

    def _answered(self) -> None:
        if self._failures >= TELL_AFTER:
            self._announce("MLflow answers again; logs are being delivered")
        self._failures, self._failing_since = 0, None

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failing_since is None:
            self._failing_since = time.monotonic()
        if self._failures == TELL_AFTER:
            reason = " ".join(self._tracker.safe(f"{type(error).__name__}: {error}").split())[:300]
            self._announce(f"MLflow does not answer ({reason}); logs are kept and delivered later")
