"""Sweeps in this process: no Ray, trainings whose scores are a formula, and a kill before any write.

A `World` is a home with a sweep in it. Its commands are the product's own `run_sweep`; only what runs the
trainings (Tune), what they compute (the experiment) and the thread that delivers to MLflow are replaced.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest
from mlflow import MlflowClient
from optuna.storages.journal import JournalFileBackend

from mlcl.config import JobConfig, load_space
from mlcl.service import folders, sweep, sweep_session, trial
from mlcl.service.interrupt import StopRequest
from mlcl.service.ledger import Ledger
from mlcl.service.scores import Scores
from mlcl.service.storage import open_storage
from mlcl.service.sweep_plan import SweepPlan
from mlcl.service.trial import ENDED, EPOCH, SCORE, TrialTask, train
from mlcl.tracking import Provenance, cursor, log
from mlcl.tracking.delivery import Delivery
from mlcl.tracking.files import replace_text
from mlcl.tracking.lines import Appender, decode, read_lines
from mlcl.training.events import Diverged, Event, Stopped
from mlcl.training.experiment import Outcome
from mlcl.training.files import EMBEDDINGS, MODEL, RESULT

STEPS = 10
"""Optimiser steps of an epoch."""
TIMES = ("began", "seen", "seconds", "cpu_seconds", "gpu_seconds")
CLIENT_WRITES = (
    "create_experiment",
    "create_run",
    "log_batch",
    "log_artifact",
    "log_artifacts",
    "log_text",
    "update_run",
    "set_terminated",
    "create_registered_model",
    "create_model_version",
    "set_registered_model_alias",
)
_ids = itertools.count()


class Killed(BaseException):
    """The process is gone: nothing is written any more, whoever tries."""


class Mortal:
    """Counts the points of a command at which a kill can make a difference, and kills it at one of them.

    Every durable write has a point before and one after it; an append also one in the middle of its line.
    """

    def __init__(self) -> None:
        self.count, self.at = 0, -1
        self.dead = False

    def point(self) -> None:
        """One point."""
        if self.dead or self.count == self.at:
            self.dead = True
            raise Killed
        self.count += 1

    def write(self, write: Callable, tear: Callable | None = None) -> Callable:
        """The write with its points; `tear` does the first half of it."""

        def wrapped(*args, **kwargs):
            self.point()
            if tear is not None:
                if self.count == self.at:
                    tear(*args, **kwargs)
                self.point()
            result = write(*args, **kwargs)
            self.point()
            return result

        return wrapped

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Every durable write of the driver, its trainings and the delivery goes through here."""
        patch.setattr(Ledger, "append", self.write(Ledger.append, _tear_ledger))
        patch.setattr(Appender, "append", self.write(Appender.append, _tear_log))
        patch.setattr(Scores, "_append", self.write(Scores._append, _tear_scores))
        journal = JournalFileBackend
        patch.setattr(journal, "append_logs", self.write(journal.append_logs, _tear_journal))
        for module in (folders, log, cursor):
            patch.setattr(module, "replace_text", self.write(replace_text))
        for name in CLIENT_WRITES:
            patch.setattr(MlflowClient, name, self.write(getattr(MlflowClient, name)))


def _tear_ledger(ledger: Ledger, event: str, **_: object) -> None:
    ledger._cut_torn_line()
    _begin(ledger.path, f'{{"event": "{event}", "at"')


def _tear_log(appender: Appender, _entries: object, end: int) -> None:
    os.ftruncate(appender._descriptor, end)
    os.write(appender._descriptor, b'{"kind":"metrics","st')


def _tear_scores(scores: Scores, _entry: object) -> None:
    _begin(scores._path, '{"epoch": ')


def _tear_journal(backend: JournalFileBackend, _logs: object) -> None:
    _begin(Path(backend._file_path), '{"op_code": 4, "work')


def _begin(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


class Formula:
    """An experiment whose figures follow from the job and the epoch alone.

    It writes what a real one does, in the same order, and goes on from its checkpoint. `fails` says where it
    diverges, `scale` what its scores are multiplied by, `before` is called before an epoch, `write` replaces
    its files.
    """

    def __init__(self) -> None:
        self.fails: Callable[[JobConfig, int], bool] = lambda _job, _epoch: False
        self.scale: Callable[[JobConfig], float] = lambda _job: 1.0
        self.before: Callable[[JobConfig, int], object] = lambda _job, _epoch: None
        self.trained: list[tuple[str, int]] = []
        self.write = replace_text

    def __call__(self, material, *, folder, context, listener, should_stop, test=True) -> Outcome:
        job, checkpoint = material.job, folder / "checkpoint.json"
        done = json.loads(checkpoint.read_text()) if checkpoint.exists() else 0
        epochs = job.train.epochs
        for epoch in range(done + 1, epochs + 1):
            self.before(job, epoch)
            self.trained.append((folder.name, epoch))
            step = epoch * STEPS

            def tell(kind, epoch=epoch, step=step, **metrics):
                named = {key.replace("__", "/"): value for key, value in metrics.items()}
                listener(Event(kind, epoch, epochs, step, epochs * STEPS, named))

            if self.fails(job, epoch):
                raise Diverged(f"the loss is not finite [step {step}]")
            tell("step", train__loss=1 - self.score(job, epoch))
            tell("validation", val__accuracy=self.score(job, epoch))
            tell("saving")
            self.write(checkpoint, json.dumps(epoch))
            if should_stop():
                raise Stopped
        metrics = self.figures(job) | ({"test/accuracy": self.score(job, epochs) / 2} if test else {})
        (folder / MODEL).mkdir(exist_ok=True)
        self.write(folder / MODEL / "job.yaml", job.experiment)
        self.write(folder / EMBEDDINGS, "embeddings")
        self.write(folder / RESULT, json.dumps(metrics))
        listener(Event("end", epochs, epochs, epochs * STEPS, epochs * STEPS, metrics))
        return Outcome(metrics, resumed=done > 0)

    def score(self, job: JobConfig, epoch: int) -> float:
        """Best at a temperature of 0.2 in both heads."""
        heads = job.objective.heads.values()
        quality = sum(math.exp(-(math.log(head.temperature / 0.2) ** 2)) for head in heads) / len(heads)
        seed = 0.01 * math.sin(13 * job.train.seed + 1)
        return round((quality + seed) * (1 - 0.5**epoch), 6) * self.scale(job)

    def figures(self, job: JobConfig) -> dict[str, float]:
        """The final ones."""
        score = self.score(job, job.train.epochs)
        return {
            "val/accuracy": score,
            "val/macro_f1": round(1 - 10 * job.train.lr, 6),
            "knn_best/val/accuracy": score + 0.01,
            "knn_best/k": 3.0 if score > 0.5 else 1.0,
            "knn_best/lambda": 0.5,
            "knn_best/temperature": 1.0,
        }


class _Pruned(BaseException):
    """Tune ends a training inside of its report."""


def in_process(desk, *, folder: Path, packing, most: int, at_once: int = 1) -> None:
    """Tune's part: takes up to `at_once` trainings, begins them, and plays one after the other."""
    del folder, packing
    left = most
    while left > 0:
        tasks = [task for _ in range(min(at_once, left)) if (task := desk.next()) is not None]
        if not tasks:
            return
        left -= len(tasks)
        for task in tasks:
            desk.begin(task.key)
        for task in tasks:
            desk.end(task.key, _play(task, desk))


def _play(task: TrialTask, desk) -> dict:
    """The last report of a training; empty where the desk stopped it early."""
    last: dict = {}

    def report(result: dict) -> None:
        if result[ENDED]:
            last.update(result)
        elif desk.abort() or desk.rung(task.key, result[EPOCH], result[SCORE]):
            raise _Pruned

    try:
        train(task, report)
    except _Pruned:
        return {}
    return last


class _Nowhere:
    """A delivery that delivers nothing: the logs alone are looked at."""

    def __init__(self, *_):
        self.add, self.add_left = (lambda _id: None), (lambda: None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def run_id(self, _id):
        return None

    def wait_run_id(self, _id, _timeout):
        return None

    def drain(self, **_):
        return 0


class _AtOnce(Delivery):
    """Delivers in the command's own thread, at moments that do not depend on a clock."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for id in list(self._held):
            self._release(id)

    def add(self, id):
        super().add(id)
        if len(self._ids) % 3 == 0:
            self._round()

    def drain(self, **_):
        self._round()
        return self._left()

    def wait_run_id(self, id, _timeout):
        self._round()
        return self.run_id(id)


class World:
    """A home with a sweep. `mlflow`: the URI of a store that has its tables, None to deliver nowhere."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch, mlflow: str | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home, self.mlflow, self.formula, self.mortal = home, mlflow, Formula(), Mortal()
        self.events: list = []
        self.request = StopRequest()
        self._patch = patch
        if mlflow is not None:
            patch.setenv("MLFLOW_TRACKING_URI", mlflow)
        patch.setattr(os, "fsync", lambda _: None)  # a killed process loses nothing that it has written
        patch.setattr(folders, "new_id", lambda: f"mlcl-20300101-000000-{next(_ids):06d}")
        patch.setattr(sweep, "ray_session", lambda **_: nullcontext())
        patch.setattr(sweep, "nodes", lambda: [{"CPU": 2.0}])
        patch.setattr(sweep, "stop_on_signal", self._listening)
        patch.setattr(sweep, "provenance", lambda: Provenance({"mlcl.python": "3"}, "diff"))
        patch.setattr(sweep, "Delivery", _Nowhere if mlflow is None else _AtOnce)
        if mlflow is None:
            patch.setattr(sweep, "Tracker", lambda _home: SimpleNamespace(uri="nowhere"))
        patch.setattr(trial, "Material", SimpleNamespace(of=lambda job, *_, **__: SimpleNamespace(job=job)))
        patch.setattr(trial, "run_experiment", self.formula)
        patch.setattr(trial, "LOOK_EVERY", 0.0)  # at every epoch: they take no time
        self.execute()

    def execute(self, **how: int) -> None:
        """How trainings are run from now on."""

        def run_work(desk, **usual):
            in_process(desk, **usual, **how)

        self._patch.setattr(sweep_session, "run_work", run_work)

    def plan(self, job: JobConfig, text: str, **how: object) -> SweepPlan:
        """A sweep of a space given as text."""
        file = self.home / "space.yaml"
        file.write_text(text)
        return SweepPlan(job, load_space(file, job), text, **{"name": "sweep", "trials": 4, **how})

    def run(self, plan: SweepPlan):
        """One command."""
        return sweep.run_sweep(plan, home=self.home, watch=self.events.append)

    def kill_when(self, moment: Callable[[JobConfig, int], bool]) -> None:
        """The next `killed` command dies with the first write of a training's epoch, once."""

        def look(job: JobConfig, epoch: int) -> None:
            if moment(job, epoch):
                self.mortal.at = self.mortal.count
                self.formula.before = lambda _job, _epoch: None

        self.formula.before = look

    def stop_when(self, moment: Callable[[JobConfig, int], bool]) -> None:
        """A person's first Ctrl-C in a training's epoch, once."""

        def look(job: JobConfig, epoch: int) -> None:
            if moment(job, epoch):
                self.request.set()
                self.formula.before = lambda _job, _epoch: None

        self.formula.before = look

    @contextmanager
    def _listening(self, _announce: object) -> Iterator[StopRequest]:
        self.request = StopRequest()
        yield self.request

    def killed(self, plan: SweepPlan, at: int = -1) -> bool:
        """One command that is killed at a point; whether it got there."""
        mortal = self.mortal = Mortal()
        mortal.at = at
        with self._patch.context() as patch:
            mortal.install(patch)
            self.formula.write = mortal.write(replace_text)
            try:
                self.run(plan)
            except Killed:
                return True
            finally:
                self.formula.write = replace_text
        return False

    def points(self, plan: SweepPlan) -> int:
        """Runs one command, unharmed, and counts its points."""
        assert not self.killed(plan, -1)
        return self.mortal.count

    @property
    def folder(self) -> Path:
        """The sweep's."""
        found = folders.RunFolders(self.home, "sweeps").named("sweep")
        assert found is not None
        return found.path

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder)

    @property
    def study(self) -> optuna.Study:
        """Of the present space."""
        storage = open_storage(self.folder / "study.journal")
        return optuna.load_study(study_name=self.ledger.generations[-1].study, storage=storage)

    def notes(self) -> str:
        return "\n".join(event.text for event in self.events)

    def everything(self) -> dict:
        """What all say about the sweep, but for times and ids that no two sweeps share."""
        found = {"ledger": self._told(), "study": self._studied(), "logs": self._logged()}
        if self.mlflow is not None:
            found["mlflow"] = self._stored()
        text = json.dumps(found, default=str)
        return json.loads(text.replace(self.folder.name, "SWEEP").replace(str(self.home), "HOME"))

    def _told(self) -> dict:
        ledger = self.ledger
        timeless = dict.fromkeys(TIMES)
        record = folders.RunFolder(self.folder).record
        assert record is not None
        return {
            "record": record.state,
            "state": ledger.state,
            "head": {key: value for key, value in ledger.head.items() if key != "at"},
            "generations": [vars(generation) for generation in ledger.generations],
            "entries": {key: vars(entry) | timeless for key, entry in ledger.entries.items()},
            "groups": {key: [vars(group), ledger.group_states[key]] for key, group in ledger.groups.items()},
            "order": ledger.order,
            "registered": list(ledger.registered),
        }

    def _studied(self) -> list[dict]:
        return [
            {
                "number": trial.number,
                "state": trial.state.name,
                "params": trial.params,
                "values": trial.values,
                "rungs": trial.intermediate_values,
                "attrs": trial.user_attrs,
            }
            for trial in self.study.trials
        ]

    def _logged(self) -> dict:
        return {path.name: logged(path) for path in sorted((self.home / "logs").iterdir())}

    def _stored(self) -> dict:
        client = MlflowClient(self.mlflow)
        experiments = [each.experiment_id for each in client.search_experiments()]
        runs = client.search_runs(experiments, f"tags.`mlcl.owner` = '{self.folder.name}'")
        names = {run.info.run_id: run.data.tags["mlcl.log"] for run in runs}
        found: dict = {}
        for run in runs:
            id, tags = run.info.run_id, dict(run.data.tags)
            for tag in ("mlflow.parentRunId", "mlcl.best_run_id"):
                if tag in tags:
                    tags[tag] = names[tags[tag]]
            points = [
                (each.key, each.step, each.value)
                for key in run.data.metrics
                for each in client.get_metric_history(id, key)
            ]
            assert names[id] not in found, "a run is there twice"
            found[names[id]] = {
                "status": run.info.status,
                "params": run.data.params,
                "tags": {name: value for name, value in tags.items() if value},
                "points": sorted(points),
                "artifacts": sorted(_paths(client, id)),
            }
        return found


def _paths(client: MlflowClient, run_id: str, under: str | None = None) -> list[str]:
    found = []
    for each in client.list_artifacts(run_id, under):
        found += _paths(client, run_id, each.path) if each.is_dir else [each.path]
    return found


def logged(folder: Path) -> dict:
    """What a log adds up to. Fails where a point is in it twice."""
    found: dict = {"params": {}, "tags": {}, "points": {}, "texts": {}, "artifacts": [], "end": None}
    for line, _ in read_lines(folder / log.LOG):
        entry = decode(line)
        match entry["kind"]:
            case "start":
                found["start"] = {key: entry[key] for key in ("experiment", "name", "owner", "parent")}
                found["params"] |= entry["params"]
                found["tags"] |= entry["tags"]
                found["texts"] |= entry["texts"]
            case "params":
                found["params"] |= entry["values"]
            case "tags":
                found["tags"] |= entry["values"]
                if "mlcl.best_run_id" in entry["values"]:
                    found["tags"]["mlcl.best_run_id"] = "there"
            case "metrics":
                for name, value in entry["values"].items():
                    point = f"{name} {entry['step']}"
                    assert point not in found["points"], f"{folder.name} has {point} twice"
                    found["points"][point] = value
            case "text":
                found["texts"][entry["name"]] = entry["file"]
            case "artifact":
                found["artifacts"] = sorted({*found["artifacts"], entry["path"]})
            case "finish":
                found["end"] = (entry["state"], entry["reason"])
            case "reopen":
                found["end"] = None
    return found


def differences(one: object, other: object, place: str = "") -> list[str]:
    """Where two sweeps' `everything` differ, a line each."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(one.keys() | other.keys())
        return [line for key in keys for line in differences(one.get(key), other.get(key), f"{place}/{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for at, pair in pairs for line in differences(*pair, f"{place}/{at}")]
    return [] if one == other else [f"{place}: {one} | {other}"]
