"""Ray Tune as the executor of trials: what runs at once, what stops early, and who is told."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune import Callback, RunConfig, Stopper, TuneConfig
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from mlcl.config import JobConfig, Space
from mlcl.service.book import Book, Trial
from mlcl.service.searcher import EPOCH, FINAL, SCORE, DriverOnly
from mlcl.service.trial import run_trial
from mlcl.tracking import State


def build_scheduler(space: Space, job: JobConfig) -> TrialScheduler:
    """ASHA on the trial's own epoch counter, or none."""
    if space.search.scheduler == "none":
        return FIFOScheduler()
    return ASHAScheduler(
        time_attr=EPOCH,
        metric=SCORE,
        mode=space.mode,
        # One more than any report: the last one must not count as stopped early.
        max_t=job.train.epochs + 1,
        grace_period=grace_epochs(space, job),
        reduction_factor=space.search.reduction_factor,
    )


def grace_epochs(space: Space, job: JobConfig) -> int:
    """Epochs before a trial may be stopped early."""
    return min(space.search.grace * job.evaluation.every, job.train.epochs)


def rungs(space: Space, job: JobConfig) -> list[int]:
    """The epochs at which trials are compared."""
    if space.search.scheduler == "none":
        return []
    epoch, found = grace_epochs(space, job), []
    while epoch < job.train.epochs:
        found.append(epoch)
        epoch *= space.search.reduction_factor
    return found


class _StopWhenAsked(DriverOnly, Stopper):
    def __init__(self, asked: Callable[[], bool]) -> None:
        self._asked = asked

    def __call__(self, *_: Any) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._asked()


class _Closer(DriverOnly, Callback):
    """Closes every trial in the book with the state that it really ended in."""

    def __init__(self, book: Book, asked: Callable[[], bool], closed: Callable[[Trial], None]) -> None:
        self._book, self._asked, self._closed = book, asked, closed

    def on_trial_complete(self, *_: Any, trial: Any, **__: Any) -> None:
        result = trial.last_result or {}
        early = State.STOPPED if self._asked() else State.PRUNED
        state = State.COMPLETE if result.get(FINAL) else early
        self._close(trial, state, result.get(SCORE))

    def on_trial_error(self, *_: Any, trial: Any, **__: Any) -> None:
        self._close(trial, State.FAILED, None)

    def _close(self, trial: Any, state: State, score: float | None) -> None:
        run_id = json.loads(trial.config["payload"])["run_id"]
        self._closed(self._book.close(run_id, state, score))


def run_trials(
    book: Book,
    *,
    folder: Path,
    mode: str,
    count: int,
    cpus: float,
    gpus: float,
    concurrent: int,
    asked: Callable[[], bool],
    closed: Callable[[Trial], None],
    searcher: Searcher | None = None,
    scheduler: TrialScheduler | None = None,
    configs: list[dict[str, Any]] | None = None,
) -> None:
    """Runs `count` trials of a searcher, or the given configs; returns when all have ended.

    Actors are reused, so that imports are paid once per concurrent trial.
    """
    # Failed trials are told in one line by the book; their traces are in their runs.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    payloads = [config["payload"] for config in configs or []]
    tuner = tune.Tuner(
        tune.with_resources(run_trial, {"cpu": cpus, "gpu": gpus}),
        param_space={"payload": tune.grid_search(payloads)} if payloads else {},
        tune_config=TuneConfig(
            metric=None if searcher else SCORE,
            mode=None if searcher else mode,
            search_alg=searcher,
            scheduler=scheduler,
            num_samples=count if searcher else 1,
            max_concurrent_trials=concurrent,
            reuse_actors=True,
            trial_name_creator=lambda trial: trial.trial_id,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=RunConfig(
            name=f"ray-{time.time_ns()}",
            storage_path=str(folder.resolve()),
            stop=_StopWhenAsked(asked),
            callbacks=[_Closer(book, asked, closed)],
            verbose=0,
        ),
    )
    tuner.fit()
