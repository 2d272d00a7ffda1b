"""Submits a call's command to a cluster, waits for its end, and reads its results from MLflow."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

from mlcl.config.cluster import ClusterConfig, load_cluster
from mlcl.errors import MachineError, UserError
from mlcl.service.command_checks import check_command, with_share
from mlcl.service.jobs import JobsClient, submit_once
from mlcl.tracking import State, Tracker
from mlcl.tracking.names import Tag
from mlcl.tracking.uri import KEY, sqlite_file, tracking_uri
from mlcl.training.run_files import RESULT

if TYPE_CHECKING:
    from mlflow.entities import Run

    from mlcl.api.answer import Answer
    from mlcl.api.cluster_command import ClusterCommand
    from mlcl.results.runs import Runs
    from mlcl.service.run_job import RunReport

SWEEP, PLAIN = "sweep", "run"
"""The kinds of the runs in MLflow that the results of a job are read from."""
CLUSTER_FILE = "the path of a cluster file, which names ray and storage; see `mlcl submit --cluster`"
ReadCluster = tuple[ClusterConfig, Path]
"""A cluster with its file."""


@dataclass(frozen=True)
class ClusterResults:
    """The tracking store of a cluster as this machine reaches it, and the cluster's folder of results.

    `home` is this machine's home; it is the storage if the store is the SQLite file in the storage.
    """

    storage: Path
    home: Path
    uri: str

    @classmethod
    def of(cls, cluster: ClusterConfig, file: Path, home: Path) -> ClusterResults:
        """Returns the store: MLFLOW_TRACKING_URI, else the file's MLflow, else SQLite in the storage."""
        storage, uri = Path(cluster.storage), os.environ.get(KEY) or _tracking_uri(cluster)
        if uri is None and not storage.is_dir():
            problem, allowed = "its results cannot be read from this machine", f"mlflow.uri, or {KEY}"
            raise UserError(problem, file=file, key="storage", found=storage, allowed=allowed)
        place = (storage, tracking_uri(storage)) if uri is None else (home, uri)
        results = cls(storage, *place)
        if sqlite_file(results.uri) is None:  # the SQLite file may not exist yet
            results.tracker()
        return results

    def tracker(self) -> Tracker:
        """Returns the open store. Raises UserError where it does not answer."""
        return Tracker.open_existing(self.home, self.uri)


@dataclass(frozen=True)
class EndedJob:
    """A job that has ended: its id, its state, and the lines that its last attempt printed."""

    id: str
    state: str
    lines: list[str]

    def error(self, found: str) -> Exception:
        """Returns the error for a job whose results are missing (`found`), with its last printed line."""
        last_line = next((line for line in reversed(self.lines) if line.strip()), "it printed nothing")
        if self.state == "REFUSED":
            return UserError(
                "the cluster refuses the command", key="on", found=last_line.removeprefix("error: ")
            )
        return MachineError(
            f"the job {self.id} is {self.state}, {found}: {last_line.removeprefix('failed: ')}"
        )


def cluster_of(cluster_file: Any) -> ReadCluster:
    """Reads the cluster file of the argument `cluster_file`. Raises UserError, which names the argument."""
    if not isinstance(cluster_file, (str, Path)) or not str(cluster_file).strip():
        value = (
            repr(cluster_file) if isinstance(cluster_file, str) else type(cluster_file).__name__
        )  # a mapping may have a secret
        raise UserError("no cluster file", key="on", found=value, allowed=CLUSTER_FILE)
    try:
        return load_cluster(Path(cluster_file)), Path(cluster_file)
    except UserError as error:
        missing = {"found": "nothing", "allowed": CLUSTER_FILE}
        defaults = {key: default for key, default in missing.items() if getattr(error, key) is None}
        raise error.with_fields(file=f"on={cluster_file}", **defaults) from None


def submit_sweep(
    cluster: ReadCluster, command: ClusterCommand, home: Path, say: Callable[[str], None]
) -> Answer:
    """Submits a sweep, follows it to its end, and returns its answer.

    Raises UserError before anything is submitted or if the cluster refuses the command, MachineError if the
    job ended without a result, and KeyboardInterrupt for Ctrl-C, after which the job goes on.
    """
    from mlcl.api.answer import Answer
    from mlcl.results.documents import read_sweep

    job, store = _submit_and_follow(cluster, command, home, say)
    return Answer(read_sweep(*_find_run(job, store, SWEEP)), store.home, store.uri)


def submit_run(
    cluster: ReadCluster, command: ClusterCommand, home: Path, say: Callable[[str], None]
) -> RunReport:
    """Submits a run and follows it as `submit_sweep`. The folder in the returned report is on the cluster."""
    from mlcl.service.run_job import RunReport
    from mlcl.store import RunFolders

    job, store = _submit_and_follow(cluster, command, home, say)
    runs, run = _find_run(job, store, PLAIN)
    tags, state = run.data.tags, State(run.data.tags[Tag.STATE])
    id = tags[Tag.ID]
    return RunReport(
        id=id,
        state=state,
        folder=RunFolders(store.storage).root / id,
        log=tags[Tag.LOG],
        metrics=json.loads(runs.text(run, RESULT)) if state is State.COMPLETE else {},
        resumed=f"going on with {id}" in job.lines,
        reason=tags.get(Tag.REASON, ""),
        mlflow_run_id=str(run.info.run_id),
    )


def _submit_and_follow(
    read_cluster: ReadCluster, command: ClusterCommand, home: Path, say: Callable[[str], None]
) -> tuple[EndedJob, ClusterResults]:
    cluster, file = read_cluster
    client = JobsClient(cluster, file)
    needed_files = check_command(command.words[0], command.given, cluster.working_dir.root, command.files)
    store = ClusterResults.of(cluster, file, home)
    words = with_share(command.words, cluster.trial)
    id = submit_once(
        client, words, home=home, required_files=needed_files, files=command.files, fresh=command.fresh
    )
    flag = f"--cluster {shlex.quote(str(file))}"
    say(f"{id}: mlcl logs -f {id} {flag}   mlcl status {id} {flag}   mlcl stop {id} {flag}")
    lines = []
    try:
        for line in client.lines(id):
            lines.append(line)
            say(line)
    except KeyboardInterrupt:
        say(f"the job goes on: the same call follows it; mlcl logs -f {id} {flag}, mlcl stop {id} {flag}")
        raise
    return EndedJob(id, client.get(id).state, lines), store


def _find_run(job: EndedJob, store: ClusterResults, kind: str) -> tuple[Runs, Run]:
    """Returns a job's sweep or run in MLflow. Raises `job.error` if it is missing or has another state."""
    from mlcl.results.runs import Runs

    file = sqlite_file(store.uri)
    if file is not None and not file.is_file():
        raise job.error(f"and there is no {file}")
    runs = Runs(store.tracker())
    job_runs = [
        run for run in runs.find_tagged(Tag.JOB, job.id) if run.data.tags.get(Tag.KIND, PLAIN) == kind
    ]
    state = job_runs[0].data.tags[Tag.STATE] if job_runs else "none"
    if state != job.state:
        raise job.error(f"and the state of its {kind} in {runs.tracker.shown} is {state}")
    return runs, job_runs[0]


def _tracking_uri(cluster: ClusterConfig) -> str | None:
    """Returns the address of the cluster file's MLflow, with user and password if this machine has them."""
    server = cluster.mlflow
    if server is None:
        return None
    if server.username is None or server.password is None or "MLFLOW_TRACKING_USERNAME" in os.environ:
        return server.uri
    try:
        login = ":".join(
            quote(secret.resolve("mlflow"), safe="") for secret in (server.username, server.password)
        )
    except UserError:  # only the head has them
        return server.uri
    parts = urlsplit(server.uri)
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))
