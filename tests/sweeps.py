"""Sweeps in the test's process, without Ray, with trainings by formula and kills before any write.

A `World` is a home with a sweep in it. Its commands are mlcl's own `run_sweep`; only Tune (which runs the
trainings), the experiment (which computes their scores) and the thread that delivers to MLflow are replaced.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest
import ray
from formula import Formula, in_process
from mortal import Killed, Mortal, tear_file
from sweep_contents import contents

from mlcl.config import JobConfig, load_space
from mlcl.files import replace_text
from mlcl.results import documents
from mlcl.service.engine import command, engine, trial
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.packing import Resources
from mlcl.service.process.signals import StopRequest
from mlcl.service.search import best_model, sweep_run
from mlcl.service.search.study import build_study
from mlcl.service.search.sweep import run_sweep
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.store import RunFolders, database, runs
from mlcl.tracking import Provenance
from mlcl.tracking.delivery import Delivery
from mlcl.training.run_files import MODEL

_ids = itertools.count()


class _Nowhere:
    """A delivery that delivers nothing, for tests that read the logs alone."""

    def __init__(self, *_):
        self.add, self.add_undelivered = (lambda _id: None), (lambda: None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def run_id(self, _id):
        return None

    def wait_run_id(self, _id, _timeout):
        return None

    def delivered_run(self, _id):
        return None

    def drain(self, **_):
        return 0


class AtOnce(Delivery):
    """A delivery in the command's own thread, at moments that do not depend on a clock."""

    _added = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def add(self, id):
        super().add(id)
        self._added += 1
        if self._added % 3 == 0:
            self.deliver()

    def drain(self, **_):
        self.deliver()
        return self.count_pending()

    def wait_run_id(self, id, _timeout):
        self.deliver()
        return self.run_id(id)


def _version(tracker, plan, best, folder, run_id, _stop):
    """Registers a version of files that are no model, once for each run, and returns the version."""
    name, source = plan.job.experiment, (folder / MODEL).as_uri()
    tracker.make_model(name)
    version = tracker.versions(run_id, source).get(name)
    return version or str(tracker.client.create_model_version(name, source, run_id).version)


class World:
    """A home with a sweep. `mlflow` is the URI of a store that has its tables; None delivers nothing."""

    writers = (documents,)
    """The modules that write whole files of a sweep."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch, mlflow: str | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home, self.mlflow, self.formula, self.mortal = home, mlflow, Formula(), Mortal()
        self.events: list = []
        self.request = StopRequest()
        self._patch = patch
        if mlflow is not None:
            patch.setenv("MLFLOW_TRACKING_URI", mlflow)
        patch.setattr(os, "fsync", lambda _: None)  # a killed process loses nothing that it has written
        patch.setattr(database, "SYNCHRONOUS", "OFF")
        patch.setattr(runs, "new_id", lambda: f"mlcl-20300101-000000-{next(_ids):06d}")
        patch.setattr(command, "ray_session", lambda *_, **__: nullcontext())
        patch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}])
        patch.setattr(engine, "BEAT_EVERY", float("inf"))  # events of a clock would make two sweeps differ
        patch.setattr(sweep_run, "WRITE_EVERY", float("inf"))
        patch.setattr(command, "stop_on_signal", self._listening)
        patch.setattr(command, "provenance", lambda ignored_folder: Provenance({"mlcl.python": "3"}, "diff"))
        patch.setattr(command, "Delivery", _Nowhere if mlflow is None else AtOnce)
        if mlflow is None:
            fake_tracker = SimpleNamespace(uri="nowhere", home=home, hide_password=str)
            fake_tracker.open_experiment = lambda *_, **__: None
            patch.setattr(command, "Tracker", lambda _home: fake_tracker)
        patch.setattr(trial, "JobData", SimpleNamespace(of=lambda job, *_, **__: SimpleNamespace(job=job)))
        patch.setattr(trial, "run_experiment", self.formula)
        patch.setattr(best_model, "export_version", _version)
        patch.setattr(trial, "LOOK_EVERY", 0.0)  # at every epoch, because epochs take no time
        self.execute()

    def execute(self, **how: int) -> None:
        """Sets the options with which trainings are run from now on."""

        def run_trainings(callbacks, **options):
            in_process(callbacks, **options, **how)

        self._patch.setattr(engine, "run_trainings", run_trainings)

    def plan(self, job: JobConfig, text: str, **how: object) -> SweepPlan:
        """Returns the plan of a sweep of a space given as text."""
        file = self.home / "space.yaml"
        file.write_text(text)
        resource_options = {key: how.pop(key) for key in ("cpus", "gpus", "parallel", "budget") if key in how}
        how = {"name": "sweep", "trials": 4, "resources": Resources(**resource_options), **how}
        return SweepPlan(job, load_space(file, job), text, **how)

    def run(self, plan: SweepPlan):
        """Runs one command."""
        return run_sweep(plan, home=self.home, watch=self.events.append)

    def kill_when(self, moment: Callable[[JobConfig, int], bool]) -> None:
        """Lets the next `killed` command die at the first write of an epoch that `moment` accepts, once."""

        def look(job: JobConfig, epoch: int) -> None:
            if moment(job, epoch):
                self.mortal.at = self.mortal.count
                self.formula.before = lambda _job, _epoch: None

        self.formula.before = look

    def stop_when(self, moment: Callable[[JobConfig, int], bool]) -> None:
        """Requests a stop, as a first Ctrl-C does, in an epoch that `moment` accepts, once."""

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
        """Runs one command that is killed at a point, and returns whether it reached the point."""
        mortal = self.mortal = Mortal()
        mortal.at = at
        with self._patch.context() as patch:
            mortal.install(patch)
            for module in self.writers:
                patch.setattr(module, "replace_text", mortal.write(replace_text, tear_file))
            self.formula.write = mortal.write(replace_text)
            try:
                self.run(plan)
            except Killed:
                return True
            finally:
                self.formula.write = replace_text
        return False

    def points(self, plan: SweepPlan) -> int:
        """Runs one command without a kill and returns the number of its points."""
        assert not self.killed(plan, -1)
        return self.mortal.count

    @property
    def folder(self) -> Path:
        """The folder of the sweep."""
        run_folder = RunFolders(self.home, "sweeps").find_named("sweep")
        assert run_folder is not None
        return run_folder.path

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder)

    @property
    def study(self) -> optuna.Study:
        """The study of the sweep's present space."""
        return self.study_of("")

    def study_of(self, scope: str) -> optuna.Study:
        """Returns the study of the present space of a search."""
        version = self.ledger.versions(scope)[-1]
        return build_study(version, self.ledger.trials(version.number, scope), "sweep")

    def notes(self) -> str:
        return "\n".join(event.text for event in self.events)

    def everything(self) -> dict:
        """Returns everything that is stored of the sweep, see `contents`."""
        return contents(self.home, self.folder, self.study, self.mlflow)
