"""A client of Ray's Jobs API, which gives all attempts of a command one id and translates Ray's states."""

from __future__ import annotations

import getpass
import json
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mlcl.backports import StrEnum
from mlcl.config.cluster import ClusterConfig
from mlcl.errors import UserError

ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,99}")
ADDRESSES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
"""Environment variables that Ray's client prefers to the address that it is given."""
VERBOSE_LOGGERS = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""Ray's loggers of uploads and connections, whose lines would appear among the output of a job."""
STATES = {0: "COMPLETE", 2: "REFUSED", 4: "BUDGET", 130: "STOPPED"}
"""The state by the exit status of `mlcl`; any other status is FAILED."""
ACTIVE = ("PENDING", "RUNNING")
NEAREST = 5
"""The largest number of known jobs that an error names."""
LINES_EVERY = 2.0
"""Seconds between two requests for the output of a job that runs."""
STOP_SECONDS = 90
"""Seconds between Ray's SIGTERM and SIGKILL to a job, in which it writes a checkpoint."""


class Metadata(StrEnum):
    """The keys of the metadata that Ray keeps with an attempt."""

    ID = "mlcl.id"  # the id of the command, shared by all of its attempts
    ATTEMPT = "mlcl.attempt"  # number of the attempt, from 1
    COMMAND = "mlcl.command"  # JSON: the words after `mlcl`
    USER = "mlcl.user"  # who submitted the first attempt


@dataclass(frozen=True)
class JobView:
    """A submitted command; `attempt` is Ray's id of its last attempt. Times are seconds since 1970 (UTC).

    `accepted` is the command of the latest attempt that the cluster did not refuse, else of the first one.
    """

    id: str
    attempt: str
    attempts: int
    state: str
    command: tuple[str, ...]
    accepted: tuple[str, ...]
    user: str
    started: float | None
    ended: float | None
    message: str
    metadata: Mapping[str, str]

    @property
    def is_active(self) -> bool:
        """Whether the job waits or runs."""
        return self.state in ACTIVE


class JobsClient:
    """A client for the jobs of a cluster; raises UserError if the cluster does not answer or refuses."""

    def __init__(self, cluster: ClusterConfig, file: Path) -> None:
        self.cluster, self.file = cluster, file

    @cached_property
    def _client(self) -> Any:
        from ray.job_submission import JobSubmissionClient

        for name in VERBOSE_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        ray = self.cluster.ray
        headers = {}
        if ray.token is not None:
            headers["Authorization"] = f"Bearer {ray.token.resolve('ray.token')}"
        with _unset_variables(*ADDRESSES):
            return JobSubmissionClient(ray.address, headers=headers)

    def jobs(self) -> list[JobView]:
        """Returns the jobs that mlcl submitted to the cluster, the latest first."""
        attempts_by_id: dict[str, list[Any]] = {}
        for job in self._call("list_jobs"):
            job_id = (job.metadata or {}).get(Metadata.ID)
            if job_id is not None and job.submission_id is not None:
                attempts_by_id.setdefault(job_id, []).append(job)
        views = [_job_view(id, attempts) for id, attempts in attempts_by_id.items()]
        return sorted(views, key=lambda view: (view.started or 0, view.id), reverse=True)

    def find(self, id: str) -> JobView | None:
        """Returns the job with this id; None if the cluster does not know it."""
        return next((view for view in self.jobs() if view.id == id), None)

    def get(self, id: str) -> JobView:
        """Returns the job with this id. Raises UserError if the cluster does not know it."""
        view = self.find(id)
        if view is None:
            ids = [view.id for view in self.jobs()[:NEAREST]]
            raise UserError("this cluster knows no such job", key="ID", found=id, allowed=ids or "none yet")
        return view

    def submit(self, attempt: str, **job: Any) -> None:
        """Submits a job with a new submission id `attempt`; `job` is passed to Ray's `submit_job`."""
        self._call("submit_job", submission_id=attempt, **job)

    def logs(self, view: JobView) -> str:
        """Returns the output of the latest attempt."""
        return str(self._call("get_job_logs", view.attempt))

    def follow(self, view: JobView) -> AsyncIterator[str]:
        """Returns an iterator over the output of the latest attempt, until the attempt ends."""
        lines: AsyncIterator[str] = self._call("tail_job_logs", view.attempt)
        return lines

    def lines(self, id: str) -> Iterator[str]:
        """Yields the lines of a job's output until the job ends. Unlike `follow`, it works in notebooks.

        The output begins with that of the latest attempt. If the job is resumed meanwhile, the output of the
        new attempt follows.
        """
        position, last_view = 0, None
        while True:
            view = self.get(id)  # read first: if the job has ended, the output is complete
            if last_view is not None and view.attempt != last_view.attempt:
                yield from self.logs(last_view)[position:].splitlines()
                position = 0
            last_view = view
            text = self.logs(view)
            end = text.rfind("\n") + 1 if view.is_active else len(text)
            yield from text[position:end].splitlines()
            position = max(position, end)
            if not view.is_active:
                return
            time.sleep(LINES_EVERY)

    def stop(self, view: JobView) -> None:
        """Asks a job to write a checkpoint and then to end."""
        self._call("stop_job", view.attempt)

    def wait_until_ended(self, id: str, seconds: float) -> JobView:
        """Waits until the job has ended, but for at most `seconds`, and returns it."""
        deadline = time.monotonic() + seconds
        while (view := self.get(id)).is_active and time.monotonic() < deadline:
            time.sleep(0.5)
        return view

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        from ray.exceptions import AuthenticationError

        address = self.cluster.ray.address
        try:
            return getattr(self._client, method)(*args, **kwargs)
        except AuthenticationError as error:
            problem, detail = "the cluster asks for a token", "none"
            if self.cluster.ray.token is not None:
                problem = "the cluster does not take this token"
                detail = f"{address}: {str(error).splitlines()[0]}"
            raise UserError(problem, file=self.file, key="ray.token", found=detail) from None
        except (ConnectionError, OSError) as error:
            problem, answer = "no Ray cluster answers", f"{address} ({type(error).__name__})"
        except RuntimeError as error:
            problem, answer = "the cluster refused", str(error)
        raise UserError(problem, file=self.file, key="ray.address", found=answer)


def check_id(id: str) -> str:
    """Returns the id. Raises UserError if it does not match `ID`: it is also a folder's name."""
    if not ID.fullmatch(id):
        raise UserError("not an id", key="--id", found=id, allowed="letters, digits and _ -")
    return id


def attempt_name(id: str, number: int) -> str:
    """Returns the submission id of an attempt; the first attempt has the id of the job."""
    return id if number == 1 else f"{id}-{number}"


def present_user() -> str:
    """Returns the login name of this user, which is shown to other users; empty if the user has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # as in some containers
        return ""


def check_owner(id: str, owner: str, *, force: bool) -> None:
    """Raises UserError for a job of another user, unless `force`; an empty `owner` is unknown and passes."""
    if owner not in ("", present_user()) and not force:
        detail = f"{id} of {owner}"
        raise UserError("the job of another user", key="ID", found=detail, allowed="--force")


def _job_view(id: str, attempts: list[Any]) -> JobView:
    jobs = sorted(attempts, key=lambda job: int((job.metadata or {}).get(Metadata.ATTEMPT, "1")))
    last_job, states = jobs[-1], [_attempt_state(str(job.status.value), job.driver_exit_code) for job in jobs]
    accepted_jobs = [job for job, state in zip(jobs, states, strict=True) if state != "REFUSED"]
    return JobView(
        id=id,
        attempt=last_job.submission_id,
        attempts=len(attempts),
        state=states[-1],
        command=_command(last_job),
        accepted=_command(accepted_jobs[-1] if accepted_jobs else jobs[0]),
        user=last_job.metadata.get(Metadata.USER, ""),
        started=_to_seconds(last_job.start_time),
        ended=_to_seconds(last_job.end_time),
        message=(last_job.message or "").strip().expandtabs(),
        metadata=dict(last_job.metadata),
    )


def _command(attempt: Any) -> tuple[str, ...]:
    return tuple(json.loads(attempt.metadata.get(Metadata.COMMAND, "[]")))


def _attempt_state(status: str, code: int | None) -> str:
    if status == "SUCCEEDED":
        return "COMPLETE"
    return STATES.get(-1 if code is None else code, "FAILED") if status == "FAILED" else status


def _to_seconds(milliseconds: int | None) -> float | None:
    return None if not milliseconds else milliseconds / 1000


@contextmanager
def _unset_variables(*names: str) -> Iterator[None]:
    values = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(values)
