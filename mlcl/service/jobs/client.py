"""Ray's Jobs API as mlcl uses it: one id for all attempts of a command, and its state in mlcl's words."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from mlcl.config.cluster import ClusterConfig
from mlcl.errors import UserError

ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,99}")
ADDRESSES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
"""Variables that Ray's client puts above the address that it is given."""
CHATTY = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""Ray's own lines of an upload and of a connection that ends, among the lines of a job."""
STATES = {0: "COMPLETE", 2: "REFUSED", 4: "BUDGET", 130: "STOPPED"}
"""What an exit status of `mlcl` means; any other is FAILED."""
GOING = ("PENDING", "RUNNING")
STOP_SECONDS = 90
"""What Ray gives a job between SIGTERM and SIGKILL: a checkpoint is written in that time."""

T = TypeVar("T")


class Metadata(StrEnum):
    """The keys of the metadata that Ray keeps with an attempt."""

    ID = "mlcl.id"  # the id of the command, shared by all of its attempts
    ATTEMPT = "mlcl.attempt"  # number of the attempt, from 1
    COMMAND = "mlcl.command"  # JSON: the words behind `mlcl`
    USER = "mlcl.user"  # who submitted it


@dataclass(frozen=True)
class JobView:
    """One submitted command, as the cluster knows it: the latest of its attempts.

    `attempt` is its submission id at Ray, `user` who submitted it. Times are seconds since 1970, UTC.
    """

    id: str
    attempt: str
    attempts: int
    state: str
    command: tuple[str, ...]
    user: str
    started: float | None
    ended: float | None
    message: str
    metadata: Mapping[str, str]

    @property
    def going(self) -> bool:
        """Whether it waits or runs."""
        return self.state in GOING


class JobsClient:
    """The jobs of one cluster. Every method raises UserError where it cannot be reached, or refuses."""

    def __init__(self, cluster: ClusterConfig, file: Path) -> None:
        self._cluster, self._file = cluster, file
        self._client = self._asked(self._connect)

    def _connect(self) -> Any:
        from ray.job_submission import JobSubmissionClient

        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        ray = self._cluster.ray
        headers = {}
        if ray.token is not None:
            headers["Authorization"] = f"Bearer {ray.token.resolve('ray.token')}"
        with _without(*ADDRESSES):
            return JobSubmissionClient(ray.address, headers=headers)

    def jobs(self) -> list[JobView]:
        """All jobs that mlcl submitted, the latest first."""
        mine: dict[str, list[Any]] = {}
        for job in self._asked(self._client.list_jobs):
            known = (job.metadata or {}).get(Metadata.ID)
            if known is not None and job.submission_id is not None:
                mine.setdefault(known, []).append(job)
        views = [_view(id, attempts) for id, attempts in mine.items()]
        return sorted(views, key=lambda view: (view.started or 0, view.id), reverse=True)

    def find(self, id: str) -> JobView | None:
        """The job of an id; None where this cluster does not know it."""
        return next((view for view in self.jobs() if view.id == id), None)

    def get(self, id: str) -> JobView:
        """The job of an id. Raises UserError for one that this cluster does not know."""
        view = self.find(id)
        if view is None:
            known = [view.id for view in self.jobs()[:NEAREST]]
            raise UserError("this cluster knows no such job", key="ID", found=id, allowed=known or "none yet")
        return view

    def submit(
        self, attempt: str, entrypoint: str, runtime_env: dict[str, Any], metadata: dict[str, str]
    ) -> None:
        """Hands a job in under an id that is new to the cluster."""
        self._asked(
            lambda: self._client.submit_job(
                entrypoint=entrypoint,
                submission_id=attempt,
                runtime_env=runtime_env,
                metadata=metadata,
            )
        )

    def logs(self, view: JobView) -> str:
        """All that the latest attempt has printed."""
        return str(self._asked(lambda: self._client.get_job_logs(view.attempt)))

    def follow(self, view: JobView) -> AsyncIterator[str]:
        """What the latest attempt prints, until it ends."""
        lines: AsyncIterator[str] = self._client.tail_job_logs(view.attempt)
        return lines

    def stop(self, view: JobView) -> None:
        """Asks a job to end: it writes a checkpoint and its state first."""
        self._asked(lambda: self._client.stop_job(view.attempt))

    def ended(self, id: str, seconds: float) -> JobView:
        """The job as soon as it has ended, or as it is after so many seconds."""
        deadline = time.monotonic() + seconds
        view = self.get(id)
        while view.going and time.monotonic() < deadline:
            time.sleep(0.5)
            view = self.get(id)
        return view

    def _asked(self, call: Callable[[], T]) -> T:
        """The answer, or one line about why there is none."""
        from ray.exceptions import AuthenticationError

        address = self._cluster.ray.address
        try:
            return call()
        except AuthenticationError as error:
            missing = self._cluster.ray.token is None
            problem = "the cluster asks for a token" if missing else "the cluster does not take this token"
            found = "none" if missing else f"{address}: {str(error).splitlines()[0]}"
            raise UserError(problem, file=self._file, key="ray.token", found=found) from None
        except (ConnectionError, OSError) as error:
            raise self._no_answer(type(error).__name__) from None
        except RuntimeError as error:
            raise UserError("the cluster refused", file=self._file, key="ray.address", found=error) from None

    def _no_answer(self, why: str) -> UserError:
        address = self._cluster.ray.address
        return UserError(
            "no Ray cluster answers", file=self._file, key="ray.address", found=f"{address} ({why})"
        )


NEAREST = 5
"""How many known jobs an error names."""


def check_id(id: str) -> str:
    """The id, if it may be one: it becomes the name of folders."""
    if not ID.fullmatch(id):
        raise UserError("not an id", key="--id", found=id, allowed="letters, digits and _ -")
    return id


def attempt_name(id: str, number: int) -> str:
    """An attempt's submission id: the first one's is the id itself."""
    return id if number == 1 else f"{id}-{number}"


def _view(id: str, attempts: list[Any]) -> JobView:
    latest = max(attempts, key=lambda job: int((job.metadata or {}).get(Metadata.ATTEMPT, "1")))
    return JobView(
        id=id,
        attempt=latest.submission_id,
        attempts=len(attempts),
        state=_state(str(latest.status.value), latest.driver_exit_code),
        command=tuple(json.loads(latest.metadata.get(Metadata.COMMAND, "[]"))),
        user=latest.metadata.get(Metadata.USER, ""),
        started=_seconds(latest.start_time),
        ended=_seconds(latest.end_time),
        message=(latest.message or "").strip(),
        metadata=dict(latest.metadata),
    )


def _state(status: str, code: int | None) -> str:
    if status == "SUCCEEDED":
        return "COMPLETE"
    return STATES.get(-1 if code is None else code, "FAILED") if status == "FAILED" else status


def _seconds(milliseconds: int | None) -> float | None:
    return None if not milliseconds else milliseconds / 1000


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """While inside, these variables are not set."""
    held = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(held)
