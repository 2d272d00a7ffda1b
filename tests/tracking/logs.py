"""Logs under their own home, and the contents of MLflow's store after their delivery."""

from __future__ import annotations

from pathlib import Path

from mlflow.exceptions import MlflowException

from mlcl.files import lock_file
from mlcl.tracking import RunLog, Tracker, tracking_uri
from mlcl.tracking.cursor import LOCK, Cursor
from mlcl.tracking.log import log_folder
from mlcl.tracking.sender import Sender


class Killed(BaseException):
    """The exception that stands for the kill of a process."""


class Client:
    """A wrapper of MLflow's client that may be off, lack a method, or be killed during request `number`.

    The kill comes before the request reaches MLflow or, if `answered`, after that and before the answer.
    """

    def __init__(self, client, number=0, answered=False, *, on=True, lacks=""):
        self.client, self.number, self.answered = client, number, answered
        self.on, self.lacks, self.requests = on, lacks, 0

    def __getattr__(self, name):
        method = getattr(self.client, name)

        def request(*args, **options):
            self.requests += 1
            if not self.on or name == self.lacks:
                raise MlflowException("connection refused")
            fatal = self.requests == self.number
            if fatal and not self.answered:
                raise Killed
            answer = method(*args, **options)
            if fatal:
                raise Killed
            return answer

        return request


class Logs:
    """Logs of a home, which it starts and delivers without a thread, and whose store it reads back."""

    def __init__(self, home: Path, uri: str | None = None, experiment: str = "exp"):
        self.home, self.experiment = home.resolve(), experiment
        self.uri = uri or tracking_uri(self.home)
        self._tracker: Tracker | None = None

    def start(self, id="run", **how):
        defaults = {
            "uri": self.uri,
            "experiment": self.experiment,
            "name": id,
            "owner": id,
            "params": {"a.b": "1"},
            "tags": {"mlcl.id": id},
        }
        return RunLog.start(self.home, id, **(defaults | how))

    @property
    def tracker(self):
        if self._tracker is None:
            self._tracker = Tracker(self.home, self.uri)
        return self._tracker

    def deliver(self, *ids, client=None):
        """Delivers the logs, with `client` in place of MLflow's own client if it is given."""
        tracker = Tracker(self.home, self.uri)
        tracker.client = client or tracker.client
        for id in ids:
            with lock_file(log_folder(self.home, id) / LOCK) as locked:
                assert locked
                for _ in Sender(tracker, id, lambda _: None).deliver():
                    pass

    def run(self, id="run"):
        return self.tracker.client.get_run(Cursor.read(log_folder(self.home, id)).run_id)

    def history(self, key, id="run"):
        points = self.tracker.client.get_metric_history(self.run(id).info.run_id, key)
        return [(point.step, point.value) for point in points]

    def store(self):
        """Returns all contents of the experiment that do not differ between two equal deliveries."""
        client, contents = self.tracker.client, {}
        experiment = client.get_experiment_by_name(self.experiment)
        for run in client.search_runs([experiment.experiment_id] if experiment else []):
            id, tags = run.info.run_id, dict(run.data.tags)
            parent = tags.pop("mlflow.parentRunId", None)
            points = [
                (m.key, m.step, str(m.value))
                for key in run.data.metrics
                for m in client.get_metric_history(id, key)
            ]
            contents.setdefault(run.info.run_name, []).append(
                {
                    "parent": parent and client.get_run(parent).info.run_name,
                    "status": run.info.status,
                    "params": run.data.params,
                    "tags": tags,
                    "points": sorted(points),
                    "data": [(i.dataset.name, i.dataset.digest) for i in run.inputs.dataset_inputs],
                    "artifacts": sorted(a.path for a in client.list_artifacts(id)),
                }
            )
        return contents
