"""Submits a command as a Ray job, with its files, its id and its environment variables."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from mlcl.config.cluster import ClusterConfig, Reference
from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.service.jobs.client import (
    ID,
    STOP_SECONDS,
    JobsClient,
    Metadata,
    attempt_name,
    check_id,
    check_owner,
    present_user,
)
from mlcl.service.jobs.package import stage
from mlcl.service.ray.references import DRIVER, REFERENCES
from mlcl.store import new_id
from mlcl.tracking.provenance import SUBMITTED

Check = Callable[[Sequence[str], Path, Mapping[str, str]], Sequence[Path]]
"""A function that checks the words of a command, given its working directory and the submission's `files`.

It returns the files that the command names, and raises UserError for a wrong command or file.
"""


@dataclass(frozen=True)
class Submission:
    """A submitted command. It is stored in the home for `resume`, because a new Ray head knows no jobs.

    `words` follow `mlcl`, `cluster` is the cluster file, `folder` the working directory, `user` the first
    submitter. `files` are texts, by name, that are uploaded with the files of the working directory.
    """

    id: str
    words: tuple[str, ...]
    cluster: str
    folder: str
    user: str
    files: Mapping[str, str] = field(default_factory=dict)


SUBMISSION = TypeAdapter(Submission)


def submit(
    client: JobsClient,
    words: Sequence[str],
    *,
    home: Path,
    required_files: Sequence[Path] = (),
    id: str | None = None,
    files: Mapping[str, str] | None = None,
) -> str:
    """Submits the command `mlcl WORDS` and returns its id: `id`, or a random one.

    `files` are texts by file name, which are uploaded besides the working directory. Raises UserError if the
    id is taken, or a file in `required_files` is not uploaded.
    """
    name = check_id(id or new_id())
    view = client.find(name)
    if view is not None:
        detail = f"{name}: {view.state}, mlcl {shlex.join(view.command)}"
        raise UserError("this id is taken", key="--id", found=detail, allowed="another id, or mlcl resume")
    submission = _submission(client, name, words, present_user())
    _send_attempt(client, replace(submission, files=files or {}), 1, home, required_files)
    return name


def resume(
    client: JobsClient, id: str, more_words: Sequence[str], *, home: Path, check: Check, force: bool = False
) -> str:
    """Submits the command of a job again, with `more_words` words appended, and returns the submission id.

    The job keeps its first user. Words of attempts that the cluster refused are left out. `check` raises
    UserError for wrong words. Raises UserError for an unknown or active job, for a complete one without
    further words, and for one of another user without `force`.
    """
    view, record = client.find(id), read_submission(home, id)
    if view is None and record is None:
        raise UserError("no such job, neither on the cluster nor here", file=home, key="ID", found=id)
    owner = (view.user if view else "") or (record.user if record else "")
    check_owner(id, owner, force=force)
    if view is not None and view.is_active:
        raise UserError("this job is still running", key="ID", found=f"{id}: {view.state}")
    if view is not None and view.state == "COMPLETE" and not more_words:
        allowed = "a stopped or failed one, or further options"
        raise UserError("this job is complete", key="ID", found=id, allowed=allowed)
    if record is None:
        assert view is not None
        # Submitted from another machine: this machine's copy of the working directory is uploaded.
        record = _submission(client, id, view.accepted, owner)
    # Words of an attempt that the cluster refused would keep the job from ever going on.
    words = record.words if view is None else view.accepted
    submission = replace(record, words=(*words, *more_words), user=owner or present_user())
    number = 1 if view is None else int(view.metadata.get(Metadata.ATTEMPT, "1")) + 1
    files = check(submission.words, Path(submission.folder), submission.files)
    _send_attempt(client, submission, number, home, files)
    return attempt_name(id, number)


def submit_once(
    client: JobsClient,
    words: Sequence[str],
    *,
    home: Path,
    required_files: Sequence[Path],
    files: Mapping[str, str],
    fresh: bool = False,
) -> str:
    """Submits a command, unless this home has submitted it already, and returns its id.

    An equal command that waits or runs is left alone. One that was stopped, failed or was forgotten by the
    cluster is resumed, except with `fresh`; after a complete one the command is submitted anew.
    """
    submission = replace(_submission(client, "", words, ""), files=files)
    ids = [
        id for id, record in known_submissions(home).items() if replace(record, id="", user="") == submission
    ]
    views = {view.id: view for view in client.jobs()}
    for id in reversed(ids):
        if id in views and views[id].is_active:
            return id
    if not ids or fresh or (ids[-1] in views and views[ids[-1]].state == "COMPLETE"):
        return submit(client, words, home=home, required_files=required_files, files=files)
    resume(client, ids[-1], (), home=home, check=lambda *_: required_files)
    return ids[-1]


def read_submission(home: Path, id: str) -> Submission | None:
    """Returns the submission with this id; None if this home has no readable record of it."""
    try:
        return SUBMISSION.validate_json(_record_path(home, check_id(id)).read_bytes())
    except (OSError, ValueError):
        return None


def runtime_env(cluster: ClusterConfig, id: str, folder: Path) -> dict[str, Any]:
    """Returns Ray's runtime environment of a job, with references to secrets instead of the secrets."""
    user_variables = {name: value for name, value in cluster.env.items() if isinstance(value, str)}
    references = {name: value for name, value in cluster.env.items() if isinstance(value, Reference)}
    mlcl_variables = {"MLCL_HOME": cluster.storage, SUBMITTED: id}
    if cluster.cache is not None:
        mlcl_variables["HF_HOME"] = f"{cluster.cache.rstrip('/')}/huggingface"
    if cluster.scratch is not None:
        mlcl_variables["MLCL_SCRATCH"] = cluster.scratch
    if cluster.mlflow is not None:
        mlcl_variables["MLFLOW_TRACKING_URI"] = cluster.mlflow.uri
        for name in ("username", "password"):
            reference = getattr(cluster.mlflow, name)
            if reference is not None:
                references[f"MLFLOW_TRACKING_{name.upper()}"] = reference
    mlcl_variables[REFERENCES] = json.dumps(
        {n: r.model_dump(mode="json", exclude_none=True) for n, r in references.items()}
    )
    # Read by the job's supervisor in Ray, which has the environment of the job.
    mlcl_variables["RAY_JOB_STOP_WAIT_TIME_S"] = str(STOP_SECONDS)
    return {"working_dir": str(folder), "env_vars": {**user_variables, **mlcl_variables}}


def entrypoint(cluster: ClusterConfig, words: Sequence[str]) -> str:
    """Returns the shell command that a job runs on the cluster."""
    return shlex.join([cluster.python, "-m", DRIVER, *words])


def _send_attempt(
    client: JobsClient, submission: Submission, number: int, home: Path, needed_files: Sequence[Path]
) -> None:
    cluster = client.cluster
    working_dir = cluster.working_dir.model_copy(update={"path": Path(submission.folder)})
    with tempfile.TemporaryDirectory(prefix="mlcl-") as scratch:
        folder = stage(working_dir, Path(scratch), needed_files, submission.files)
        # The record is written first, so that every job on the cluster can be resumed from here.
        record = _record_path(home, submission.id)
        record.parent.mkdir(parents=True, exist_ok=True)
        replace_text(record, SUBMISSION.dump_json(submission, indent=2).decode() + "\n")
        client.submit(
            attempt_name(submission.id, number),
            entrypoint=entrypoint(cluster, submission.words),
            runtime_env=runtime_env(cluster, submission.id, folder),
            metadata={
                Metadata.ID: submission.id,
                Metadata.ATTEMPT: str(number),
                Metadata.COMMAND: json.dumps(submission.words),
                Metadata.USER: submission.user,
            },
        )


def _submission(client: JobsClient, id: str, words: Sequence[str], user: str) -> Submission:
    return Submission(
        id, tuple(words), str(client.file.resolve()), str(client.cluster.working_dir.root), user
    )


def _record_path(home: Path, id: str) -> Path:
    return home / "jobs" / f"{id}.json"


def known_submissions(home: Path) -> Mapping[str, Submission]:
    """Returns the submissions from this home, by id."""
    names = [file.stem for file in sorted((home / "jobs").glob("*.json")) if ID.fullmatch(file.stem)]
    submissions = {name: read_submission(home, name) for name in names}
    return {id: submission for id, submission in submissions.items() if submission is not None}
