"""Tests of the calls of Tune to our callbacks. The end-to-end tests run Tune itself."""

import pickle
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.air.execution._internal import RayActorManager
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayActorError, RayTaskError
from ray.train._internal.storage import StorageContext
from ray.tune import TuneError
from ray.tune.execution import class_cache
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from mlcl.service.engine.packing import Packing
from mlcl.service.engine.trial import TrialTask
from mlcl.service.engine.tune_executor import (
    _Abort,
    _Closer,
    _Feed,
    _Guard,
    _Scheduler,
    _trial_resources,
    run_trainings,
)
from mlcl.service.ray.private import patch_tune
from mlcl.store import RunFolder


class TrialCallbacks:
    """Callbacks of the engine that record their calls in `heard`."""

    def __init__(self, *tasks, early=False, over=False):
        self.tasks, self.early, self.over, self.heard = list(tasks), early, over, []

    def next(self):
        return self.tasks.pop(0) if self.tasks else None

    def finished(self):
        return not self.tasks

    def begin(self, key):
        self.heard.append(("begin", key))

    def report(self, key, epoch, score):
        self.heard.append(("report", key, epoch, score))
        return self.early

    def end(self, key, result):
        self.heard.append(("end", key, result))

    def on_died(self, key, reason):
        self.heard.append(("died", key, reason))

    def abort(self):
        return self.over


def guarded(callbacks):
    return _Guard(callbacks, nullcontext)


@pytest.fixture
def task():
    return TrialTask("t", {}, "f", "h", "l", "m", ("m",), False, "s", 1, 0, ".")


def trial(task, result=None, actor=None):
    state = SimpleNamespace(ray_actor=actor)
    return SimpleNamespace(config=task.config(), last_result=result, temporary_state=state)


def test_trainings_are_handed_out_until_there_are_none(task):
    feed = _Feed(guarded(TrialCallbacks(task)))
    assert TrialTask.of(feed.suggest("a")) == task
    assert feed.suggest("b") == Searcher.FINISHED


def test_tune_asks_again_where_there_is_no_training_now(task, monkeypatch):
    callbacks = TrialCallbacks(task)
    monkeypatch.setattr(callbacks, "next", lambda: None)
    assert _Feed(guarded(callbacks)).suggest("a") is None


VALUE, LAST = {"epoch": 2, "score": 0.5, "ended": ""}, {"epoch": 4, "ended": "COMPLETE"}


@pytest.mark.parametrize(
    ("early", "result", "answer", "heard"),
    [
        (True, VALUE, TrialScheduler.STOP, [("report", "t", 2, 0.5)]),
        (False, VALUE, TrialScheduler.CONTINUE, [("report", "t", 2, 0.5)]),
        (True, LAST, TrialScheduler.CONTINUE, []),  # the last value is not an intermediate one
    ],
)
def test_the_callbacks_stop_early(task, early, result, answer, heard):
    callbacks = TrialCallbacks(early=early)
    assert _Scheduler(guarded(callbacks)).on_trial_result(None, trial(task), result) == answer
    assert callbacks.heard == heard


def test_losses_of_a_training_that_comes_further_do_not_add_up(task):
    callbacks = TrialCallbacks()
    scheduler, tune_trial = _Scheduler(guarded(callbacks)), trial(task)
    tune_trial.run_metadata, failures = SimpleNamespace(num_failures=0), []
    for step in (100, 100, 90, 250, 250):
        tune_trial.run_metadata.num_failures += 1
        answer = scheduler.on_trial_result(None, tune_trial, {"resumed": step, "ended": ""})
        assert answer == TrialScheduler.CONTINUE
        failures.append(tune_trial.run_metadata.num_failures)
    assert (failures, callbacks.heard) == ([0, 1, 2, 0, 1], [])


@pytest.mark.parametrize(("last", "end"), [(None, {}), (VALUE, {}), (LAST, LAST)])
def test_begin_and_end_are_told_and_an_end_without_a_last_report_is_a_stop(task, last, end):
    callbacks = TrialCallbacks()
    closer = _Closer(guarded(callbacks))
    closer.on_trial_start(1, [], trial=trial(task))
    closer.on_trial_complete(1, [], trial=trial(task, last))
    assert callbacks.heard == [("begin", "t"), ("end", "t", end)]


def test_who_insists_on_a_stop_ends_the_processes_of_trainings_first(task, monkeypatch, tmp_path):
    tasks = {name: replace(task, key=name, folder=str(tmp_path / "runs" / name)) for name in "abc"}
    killed_actors, lock = [], RunFolder(tmp_path / "runs" / "b").try_lock()

    def fit(tuner):
        (closer,) = tuner._local_tuner.get_run_config().callbacks
        for name, named_task in tasks.items():
            closer.on_trial_start(1, [], trial=trial(named_task, actor=name))
        closer.on_trial_complete(1, [], trial=trial(tasks["a"], LAST))
        assert lock.__enter__()
        raise KeyboardInterrupt

    def kill(actor):
        killed_actors.append(actor)
        if actor == "b":
            threading.Timer(0.3, lock.__exit__, (None, None, None)).start()

    monkeypatch.setattr("ray.tune.Tuner.fit", fit)
    monkeypatch.setattr("ray.kill", kill)
    with pytest.raises(KeyboardInterrupt):
        run_trainings(TrialCallbacks(), folder=tmp_path, packing=Packing(1, 1, 1, 0))
    assert killed_actors == ["b", "c"]
    assert not RunFolder(tmp_path / "runs" / "b").is_owned  # the process that held the folder has ended


def died_on(node):
    """Returns Ray's error for a dead process, with Ray's own text."""
    error = ActorDiedError(ActorDiedErrorContext(node_ip_address=node, actor_id=bytes(16), pid=7))
    error.args = ()  # like the errors of Ray's core, whose arguments cannot be pickled
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "its process died again and again (killed, or out of memory)"),
        (RayActorError(), "its process died again and again (killed, or out of memory)"),
        (
            died_on("10.0.0.4"),
            "its process died again and again (killed, or out of memory), at last on 10.0.0.4",
        ),
        (
            RayActorError(error_msg="Task was killed: memory on the node (IP: 10.0.0.4, ID: abc) is low"),
            "its process died again and again (killed, or out of memory), at last on 10.0.0.4",
        ),
        (RayTaskError("f", "trace", RuntimeError("still\ntraining")), "RuntimeError: still training"),
        (TuneError("Traceback\nTuneError: no resources"), "TuneError: no resources"),
    ],
)
def test_a_training_that_was_given_up_says_why_in_one_line(task, monkeypatch, tmp_path, error, reason):
    callbacks, storage = TrialCallbacks(), StorageContext(tmp_path, "e", trial_dir_name="t")
    monkeypatch.setattr(StorageContext, "trial_driver_staging_path", str(tmp_path / "driver"))
    (tmp_path / "driver").mkdir()
    Path(storage.trial_fs_path).mkdir(parents=True)
    # Tune's copying thread leaves these empty files for a moment.
    for file_name in ("error.pkl", "error.txt"):
        (Path(storage.trial_fs_path) / file_name).touch()
    failed_trial = Trial("any", stub=True, config=task.config(), storage=storage)
    if error is not None:
        with patch_tune():
            failed_trial.handle_error(error)
    _Closer(guarded(callbacks)).on_trial_error(1, [], trial=failed_trial)
    assert callbacks.heard == [("died", "t", reason)]


def test_the_first_error_of_a_callback_is_kept_and_ends_all(task):
    class Broken(TrialCallbacks):
        def begin(self, key):
            raise OSError("disk full")

    callbacks = Broken(task)
    guard = guarded(callbacks)
    guard.ask(callbacks.begin, None, "t")
    assert isinstance(guard.error, OSError)
    assert guard.ask(callbacks.next, None) is None
    assert guard.ask(callbacks.abort, True)
    guard.ask(callbacks.end, None, "t", {})
    assert callbacks.heard == []


def test_the_callbacks_end_all_and_no_single_one(task):
    assert _Abort(guarded(TrialCallbacks(over=True))).stop_all()
    assert not _Abort(guarded(TrialCallbacks())).stop_all()
    assert not _Abort(guarded(TrialCallbacks(over=True)))("t", {})


@pytest.mark.parametrize("kind", [_Feed, _Scheduler, _Closer, _Abort])
def test_snapshots_leave_the_callbacks_out(kind):
    assert pickle.loads(pickle.dumps(kind(guarded(TrialCallbacks())))).__dict__ == {}


def test_what_a_training_takes():
    assert _trial_resources(Packing(2, 1.5, 0.5, 1)) == {"cpu": 1.5, "gpu": 0.5}
    assert _trial_resources(Packing(1, 1, 0, 2))["cpu"] == 0


def test_a_process_that_ray_killed_for_memory_is_a_dead_process():
    errors = []
    actor = SimpleNamespace(actor_id="a", _on_error=lambda _, error: errors.append(error))
    failed_task = SimpleNamespace(_tracked_actor=actor, _on_error=lambda _, error: errors.append(error))
    manager = RayActorManager.__new__(RayActorManager)
    manager._failed_actor_ids, manager._cleanup_actor = set(), lambda tracked_actor: None
    with patch_tune():
        manager._actor_task_failed(failed_task, OutOfMemoryError("node running low"))
    assert [type(error) for error in errors] == [RayActorError, RayActorError]
    assert "node running low" in str(errors[0])
    assert manager._failed_actor_ids == {"a"}


def test_tune_drops_trials_that_have_ended_and_no_other(monkeypatch):
    trials = [Trial("any", stub=True, trial_id=name) for name in "abc"]
    for ended_trial, status in ((trials[0], Trial.TERMINATED), (trials[2], Trial.ERROR)):
        ended_trial.set_status(status)
    monkeypatch.setattr(TuneController, "on_step_end", lambda _: None)
    controller = TuneController.__new__(TuneController)
    controller._trials, controller._trial_metadata = list(trials), dict.fromkeys("abc", "{}")
    controller._stopped_trials, controller._failed_trials = {trials[0]}, {trials[2]}
    controller._trials_to_cache = set(trials)
    with patch_tune():
        controller.on_step_end()
    assert controller.get_trials() == [trials[1]]
    assert (controller._trial_metadata, controller._trials_to_cache) == ({"b": "{}"}, {trials[1]})
    assert controller._stopped_trials | controller._failed_trials == set()


def test_tune_is_patched_only_while_it_works(monkeypatch, tmp_path):
    def now():
        return (
            RayActorManager._actor_task_failed,
            TuneController.on_step_end,
            Trial.handle_error,
            class_cache.ENV_VARS_TO_PROPAGATE,
        )

    usual_state, states = now(), []
    monkeypatch.setattr("ray.tune.Tuner.fit", lambda _: states.append(now()) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_trainings(TrialCallbacks(), folder=tmp_path, packing=Packing(1, 1, 1, 0))
    ((task_failed, step_ended, handle_error, variables),) = states
    assert task_failed is not usual_state[0]
    assert step_ended is not usual_state[1]
    assert handle_error is not usual_state[2]
    assert now() == usual_state
    # Secrets are left out, because Ray logs the variables that Tune passes to its processes.
    assert set(usual_state[3] - variables) == {name for name in usual_state[3] if name.startswith("AWS_")}
    assert usual_state[3] - variables
