"""The conditions under which a sweep or table starts no more trainings and stops those that run."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path

from mlcl.service.engine.budget import Account
from mlcl.service.process.signals import STOP_FILE, StopRequest
from mlcl.tracking import State

GRACE = 30.0
"""Seconds that running trainings have to write a checkpoint before their processes are ended."""


class StopConditions:
    """Stops a command for a signal, a used-up budget, or more than `max_failed` failures in a row.

    `cause` is None until then; afterwards it is the state that the sweep or table ends in, with a `reason`.
    `file` is the stop file, for which running trainings look.
    """

    def __init__(self, folder: Path, stop: StopRequest, account: Account, max_failed: int | None) -> None:
        self.cause: State | None = None
        self.reason = ""
        self.file = folder / STOP_FILE
        self.file.unlink(missing_ok=True)
        self._stop, self._account, self._max_failed = stop, account, max_failed
        self._failed = 0
        self._since = 0.0

    def shielded(self) -> AbstractContextManager[None]:
        """Returns a context in which no signal interrupts the code."""
        return self._stop.shielded()

    def __call__(self) -> bool:
        """Whether the command is to stop, so that no more trainings are started."""
        if self.cause is None:
            if self._stop():
                self._set(State.STOPPED, "")
            elif self._account.over():
                self._set(State.BUDGET, "the budget is used up")
        return self.cause is not None

    def insist(self) -> None:
        """Sets the cause to STOPPED, after a second signal has ended the trainings immediately."""
        self.cause, self.reason = State.STOPPED, ""

    def overdue(self) -> bool:
        """Whether the command is to stop and running trainings have had `GRACE` seconds to do so."""
        return self() and time.monotonic() - self._since > GRACE

    def count(self, state: State, reason: str) -> None:
        """Counts the end of a training; too many failures in a row stop the command."""
        if state is State.FAILED:
            self._failed += 1
            if self._max_failed is not None and self._failed > self._max_failed and self.cause is None:
                text = f"{self._failed} trainings failed in a row, the limit is {self._max_failed}"
                self._set(State.FAILED, f"{text}; the last: {reason}")
        elif state in (State.COMPLETE, State.PRUNED):
            self._failed = 0

    def clear(self) -> None:
        """Removes the stop file."""
        self.file.unlink(missing_ok=True)

    def _set(self, cause: State, reason: str) -> None:
        self.cause, self.reason = cause, reason
        self._since = time.monotonic()
        self.file.touch()
