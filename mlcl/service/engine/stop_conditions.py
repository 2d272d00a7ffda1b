"""Why a sweep or a table stops starting trainings, and how those that run are told."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path

from mlcl.service.engine.budget import Account
from mlcl.service.process.signals import StopRequest
from mlcl.tracking import State

STOP_FILE = "STOP"
"""In the folder of the sweep or table, which every node sees: trainings write a checkpoint and end."""
GRACE = 30.0
"""Seconds that trainings have to do so before their processes are ended."""


class StopConditions:
    """Whether a person, the budget or a row of failures ends the command, and why.

    More than `max_failed` failures in a row do; None allows any number.
    """

    def __init__(self, folder: Path, stop: StopRequest, account: Account, max_failed: int | None) -> None:
        self.cause: State | None = None
        self.reason = ""
        self._file = folder / STOP_FILE
        self._file.unlink(missing_ok=True)
        self._stop, self._account, self._max_failed = stop, account, max_failed
        self._failed = 0
        self._since = 0.0

    def shielded(self) -> AbstractContextManager[None]:
        """While inside, not even a second signal interrupts."""
        return self._stop.shielded()

    @property
    def file(self) -> Path:
        """Where trainings look."""
        return self._file

    def __call__(self) -> bool:
        """Whether no training is to be started any more."""
        if self.cause is None:
            if self._stop():
                self._set(State.STOPPED, "")
            elif self._account.over():
                self._set(State.BUDGET, "the budget is used up")
        return self.cause is not None

    def insist(self) -> None:
        """A person has asked for a second time: nothing is waited for."""
        self.cause, self.reason = State.STOPPED, ""

    def overdue(self) -> bool:
        """Whether the trainings that run had their time to end by themselves."""
        return self() and time.monotonic() - self._since > GRACE

    def count(self, state: State, reason: str) -> None:
        """A training has ended; too many failures in a row end the sweep."""
        if state is State.FAILED:
            self._failed += 1
            if self._max_failed is not None and self._failed > self._max_failed and self.cause is None:
                text = f"{self._failed} trainings failed in a row, the limit is {self._max_failed}"
                self._set(State.FAILED, f"{text}; the last: {reason}")
        elif state in (State.COMPLETE, State.PRUNED):
            self._failed = 0

    def clear(self) -> None:
        """Takes the stop file away."""
        self._file.unlink(missing_ok=True)

    def _set(self, cause: State, reason: str) -> None:
        self.cause, self.reason = cause, reason
        self._since = time.monotonic()
        self._file.touch()
