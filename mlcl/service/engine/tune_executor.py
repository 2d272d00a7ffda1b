"""Ray Tune as the executor of trainings: processes are reused, restarted where they die, and stopped early.

Tune's parts call `TrialCallbacks`, which decides, in the driver's thread.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from ray import tune
from ray.exceptions import RayActorError
from ray.tune import Callback, FailureConfig, RunConfig, Stopper, TuneConfig
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from mlcl.service.engine.packing import Packing
from mlcl.service.engine.trial import ENDED, EPOCH, NOTE, SCORE, TrialTask, run_trial
from mlcl.service.ray.ddp_group import MAX_RESTARTS
from mlcl.service.ray.private import patched_tune

P = ParamSpec("P")
T = TypeVar("T")


class TrialCallbacks(Protocol):
    """Called by the executor in the driver's thread; `Engine` implements it."""

    def next(self) -> TrialTask | None:
        """Returns the next training to start; None where there is none now."""

    def finished(self) -> bool:
        """Whether there will be no more, asked after `next` has returned None."""

    def begin(self, key: str) -> None:
        """Called when a process starts to train, also one that replaces a process that died."""

    def report(self, key: str, epoch: int, score: float) -> bool:
        """Called with an intermediate value; returns whether to stop the training early."""

    def note(self, key: str, text: str) -> None:
        """Called with a note of a training for the user."""

    def end(self, key: str, result: dict[str, Any]) -> None:
        """Called with the last report; it is empty after an early stop or the end of the process."""

    def died(self, key: str, reason: str) -> None:
        """Called for a training that Tune gave up, with the reason."""

    def abort(self) -> bool:
        """Whether to end at once, whatever runs. Called many times a second."""


class _Guard:
    """Calls the callbacks and keeps their first error: Tune would swallow it and train again what has ended.

    While inside a callback, `shield` holds off a second Ctrl-C: its writes belong together.
    """

    def __init__(self, callbacks: TrialCallbacks, shield: Callable[[], AbstractContextManager[None]]) -> None:
        self.error: Exception | None = None
        self.callbacks, self._shield = callbacks, shield

    def ask(self, question: Callable[P, T], otherwise: T, *args: P.args, **options: P.kwargs) -> T:
        """Returns the answer of a callback; `otherwise` where it fails, or one before has failed."""
        if self.error is not None:
            return otherwise
        try:
            with self._shield():
                return question(*args, **options)
        except Exception as error:
            self.error = error
            return otherwise


class _DriverOnly:
    """Pickles as nothing: Tune's snapshots leave its content out.

    Commands go on from the ledger and the trainings' folders, never from those snapshots.
    """

    def __init__(self, guard: _Guard) -> None:
        super().__init__()
        self._guard = guard

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _Feed(_DriverOnly, Searcher):
    """Hands trainings to Tune."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # noqa: ARG002 (Tune's interface)
        task = self._guard.ask(self._guard.callbacks.next, None)
        if task is not None:
            return task.config()
        return Searcher.FINISHED if self._guard.ask(self._guard.callbacks.finished, True) else None

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Does nothing: `_Closer` is called with the reason, too."""

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_text("{}")

    def restore(self, checkpoint_path: str) -> None:
        """Does nothing."""


class _Scheduler(_DriverOnly, FIFOScheduler):
    """Stops a training early where the callbacks say so."""

    def on_trial_result(self, _controller: Any, trial: Any, result: dict[str, Any]) -> Any:
        if result.get(ENDED):
            return TrialScheduler.CONTINUE
        key = TrialTask.of(trial.config).key
        if result.get(NOTE):
            self._guard.ask(self._guard.callbacks.note, None, key, result[NOTE])
            return TrialScheduler.CONTINUE
        report = self._guard.callbacks.report
        early = self._guard.ask(report, False, key, int(result[EPOCH]), float(result[SCORE]))
        return TrialScheduler.STOP if early else TrialScheduler.CONTINUE


class _Closer(_DriverOnly, Callback):
    """Calls the callbacks when trainings start and end."""

    def on_trial_start(self, *_: Any, trial: Any, **__: Any) -> None:
        self._guard.ask(self._guard.callbacks.begin, None, TrialTask.of(trial.config).key)

    def on_trial_complete(self, *_: Any, trial: Any, **__: Any) -> None:
        result = trial.last_result or {}
        last = result if result.get(ENDED) else {}
        self._guard.ask(self._guard.callbacks.end, None, TrialTask.of(trial.config).key, last)

    def on_trial_error(self, *_: Any, trial: Any, **__: Any) -> None:
        why = _why(trial.get_error())
        self._guard.ask(self._guard.callbacks.died, None, TrialTask.of(trial.config).key, why)


class _Abort(_DriverOnly, Stopper):
    """Ends the whole experiment where the callbacks say so."""

    def __call__(self, *_: Any) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._guard.ask(self._guard.callbacks.abort, True)


def run_trainings(
    callbacks: TrialCallbacks,
    *,
    folder: Path,
    packing: Packing,
    shield: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Runs trainings until there are no more and all have ended. Raises what a callback raised.

    Actors are reused, so that imports are paid once per training at a time.
    """
    guard = _Guard(callbacks, shield)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # failures are reported in one line
    name = f"ray-{time.time_ns()}"
    tuner = tune.Tuner(
        tune.with_resources(run_trial, _resources(packing)),
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
            callbacks=[_Closer(guard)],
            verbose=0,
        ),
    )
    try:
        with patched_tune():
            tuner.fit()
    finally:
        shutil.rmtree(folder / name, ignore_errors=True)
    if guard.error is not None:
        raise guard.error


def _why(error: Exception | None) -> str:
    cause = getattr(error, "cause", None) or error
    if cause is None or isinstance(cause, RayActorError):
        return "its process died again and again (killed, or out of memory)"
    return f"{type(cause).__name__}: {cause}"[:5000]


def _resources(packing: Packing) -> dict[str, float]:
    """A training of several workers takes nothing itself: its workers need the resources."""
    if packing.workers > 1:
        return {"cpu": 0, "memory": 1}  # a byte: no resources at all are refused
    return {"cpu": packing.cpus, "gpu": packing.gpus}
