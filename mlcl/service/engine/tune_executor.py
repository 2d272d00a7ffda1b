"""Executes trainings on Ray Tune, which reuses processes, restarts them when they die, and prunes trials.

The searcher, scheduler, callback and stopper that Tune gets call the engine, in the driver's thread.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import ray
from ray import tune
from ray.exceptions import RayActorError, RayError
from ray.tune import FailureConfig, RunConfig, Stopper, TuneConfig
from ray.tune.error import TuneError
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from mlcl.service.engine.packing import Packing
from mlcl.service.engine.trial import ENDED, EPOCH, NOTE, RESUMED, SCORE, TrialTask, run_trial
from mlcl.service.ray.ddp_group import MAX_RESTARTS
from mlcl.service.ray.private import forget_failures, last_error, patch_tune
from mlcl.store import RunFolder

P = ParamSpec("P")
T = TypeVar("T")
KILL_PATIENCE = 5.0
"""Seconds to wait for the end of a process that was killed."""


class _TrialCallbacks(Protocol):
    """The functions that the executor calls in the driver's thread; see the methods of `Engine`."""

    def next(self) -> TrialTask | None: ...
    def finished(self) -> bool: ...
    def begin(self, key: str) -> None: ...
    def report(self, key: str, epoch: int, score: float) -> bool: ...
    def note(self, key: str, text: str) -> None: ...
    def end(self, key: str, result: dict[str, Any]) -> None: ...
    def on_died(self, key: str, reason: str) -> None: ...
    def abort(self) -> bool: ...


class _Guard:
    """Calls the callbacks in a `shield` from signals, and keeps their first error, which Tune would hide."""

    def __init__(
        self, callbacks: _TrialCallbacks, shield: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self.error: Exception | None = None
        self.callbacks, self._shield = callbacks, shield

    def ask(self, question: Callable[P, T], otherwise: T, *args: P.args, **options: P.kwargs) -> T:
        """Returns the result of a callback; `otherwise` if this callback or an earlier one has failed."""
        if self.error is not None:
            return otherwise
        try:
            with self._shield():
                return question(*args, **options)
        except Exception as error:
            self.error = error
            return otherwise


class _DriverOnly:
    """A base class that is pickled without its attributes, so that Tune's unused snapshots stay small."""

    def __init__(self, guard: _Guard) -> None:
        super().__init__()
        self._guard = guard

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _Feed(_DriverOnly, Searcher):
    """A searcher of Tune that hands out the trainings of `Engine.next`."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # noqa: ARG002 (Tune's interface)
        task = self._guard.ask(self._guard.callbacks.next, None)
        if task is not None:
            return task.config()
        return Searcher.FINISHED if self._guard.ask(self._guard.callbacks.finished, True) else None

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Does nothing, since `_Closer` gets the end of a training together with its reason."""

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_text("{}")

    def restore(self, checkpoint_path: str) -> None:
        """Does nothing, since a command resumes from the ledger and not from Tune's files."""


class _Scheduler(_DriverOnly, FIFOScheduler):
    """A Tune scheduler that stops trainings early, and resets a trial's failure count after progress."""

    def __init__(self, guard: _Guard) -> None:
        super().__init__(guard)
        self._steps: dict[str, int] = {}

    def on_trial_result(self, _controller: Any, trial: Any, result: dict[str, Any]) -> Any:
        if result.get(ENDED):
            return TrialScheduler.CONTINUE
        key = TrialTask.of(trial.config).key
        if result.get(RESUMED):
            if result[RESUMED] > self._steps.get(key, 0):
                self._steps[key] = result[RESUMED]
                forget_failures(trial)
            return TrialScheduler.CONTINUE
        if result.get(NOTE):
            self._guard.ask(self._guard.callbacks.note, None, key, result[NOTE])
            return TrialScheduler.CONTINUE
        report = self._guard.callbacks.report
        pruned = self._guard.ask(report, False, key, int(result[EPOCH]), float(result[SCORE]))
        return TrialScheduler.STOP if pruned else TrialScheduler.CONTINUE


class _Closer(_DriverOnly, TrialProgressCallback):
    """A callback of Tune that calls `begin`, `end` and `on_died` when trainings start, end and fail.

    Tune uses it instead of its own `TrialProgressCallback`, which would keep all trials in memory.
    """

    def __init__(self, guard: _Guard) -> None:
        super().__init__(guard)
        self._actors: dict[str, Any] = {}
        """The actors of the trainings that run, by the trainings' folders."""

    def kill_all(self) -> None:
        """Kills the processes of the trainings that run, and waits until their folders are unlocked."""
        for actor in self._actors.values():
            with suppress(RayError, ValueError):  # Ray, or this actor, may have ended
                ray.kill(actor)
        for folder in self._actors:
            with RunFolder(Path(folder)).try_lock(KILL_PATIENCE):
                pass

    def on_trial_result(self, *_: Any, **__: Any) -> None:
        """Does nothing, since `_Scheduler` gets the reports."""

    def on_trial_start(self, *_: Any, trial: Any, **__: Any) -> None:
        task = TrialTask.of(trial.config)
        self._actors[task.folder] = trial.temporary_state.ray_actor
        self._guard.ask(self._guard.callbacks.begin, None, task.key)

    def on_trial_complete(self, *_: Any, trial: Any, **__: Any) -> None:
        self._actors.pop(TrialTask.of(trial.config).folder, None)
        result = trial.last_result or {}
        report = result if result.get(ENDED) else {}
        self._guard.ask(self._guard.callbacks.end, None, TrialTask.of(trial.config).key, report)

    def on_trial_error(self, *_: Any, trial: Any, **__: Any) -> None:
        key = TrialTask.of(trial.config).key
        self._actors.pop(TrialTask.of(trial.config).folder, None)
        self._guard.ask(self._guard.callbacks.on_died, None, key, _error_reason(last_error(trial)))


class _Abort(_DriverOnly, Stopper):
    def __call__(self, *_: Any) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._guard.ask(self._guard.callbacks.abort, True)


def run_trainings(
    callbacks: _TrialCallbacks,
    *,
    folder: Path,
    packing: Packing,
    shield: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Runs trainings until there are no more and all have ended. Raises the first error of a callback.

    Actors are reused, so that libraries are imported once per actor and not once per training. Tune's files
    in `folder` are removed at the end. Each callback runs in a context of `shield`, which signals do not
    interrupt. A KeyboardInterrupt ends the processes of the trainings.
    """
    guard = _Guard(callbacks, shield)
    closer = _Closer(guard)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # failures are reported in one line
    name = f"ray-{time.time_ns()}"
    tuner = tune.Tuner(
        tune.with_resources(run_trial, _trial_resources(packing)),
        tune_config=TuneConfig(
            search_alg=_Feed(guard),
            scheduler=_Scheduler(guard),
            num_samples=-1,  # until the searcher has finished
            max_concurrent_trials=packing.concurrent,
            reuse_actors=True,
            trial_name_creator=lambda trial: trial.trial_id,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=RunConfig(
            name=name,
            storage_path=str(folder.resolve()),
            stop=_Abort(guard),
            failure_config=FailureConfig(max_failures=MAX_RESTARTS),
            callbacks=[closer],
            verbose=0,
        ),
    )
    try:
        with patch_tune():
            tuner.fit()
    except KeyboardInterrupt:
        with shield():
            closer.kill_all()  # they would write to logs whose ends the caller writes now
        raise
    finally:
        shutil.rmtree(folder / name, ignore_errors=True)
    if guard.error is not None:
        raise guard.error


def _error_reason(error: Exception | None) -> str:
    """Returns the reason of an error as one line; the text of a TuneError is a traceback."""
    cause = getattr(error, "cause", None) or error
    if cause is None or isinstance(cause, RayActorError):
        node = re.search(r"\bip: ([^\s,]+)", str(cause), re.IGNORECASE)  # of the last process, in Ray's text
        place = f", at last on {node[1]}" if node else ""
        return f"its process died again and again (killed, or out of memory){place}"
    last_line = str(cause).strip().rpartition("\n")[2]
    reason = last_line if isinstance(cause, TuneError) else f"{type(cause).__name__}: {cause}"
    return " ".join(reason.split())[:5000]


def _trial_resources(packing: Packing) -> dict[str, float]:
    """Returns the resources of a Tune trial: none for a trial of several workers, which hold their own."""
    if packing.workers > 1:
        return {"cpu": 0, "memory": 1}  # one byte, since a trial without resources is refused
    return {"cpu": packing.cpus, "gpu": packing.gpus}
