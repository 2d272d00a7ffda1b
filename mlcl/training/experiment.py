"""One experiment: a network is trained, or a baseline is fitted, and evaluated.

It runs in a process of its own, in a worker of a group, or in a trial.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

import mlcl
from mlcl.config import job_hash
from mlcl.config.training_sections import ObjectiveConfig, TrainConfig
from mlcl.data.cache_entries import cached
from mlcl.files import new_file
from mlcl.training.baselines import BASELINES, Problem
from mlcl.training.baselines.jobs import read_rows
from mlcl.training.builders import build_loop, build_model
from mlcl.training.checkpoint import CHECKPOINT, seed_all
from mlcl.training.context import Context, deterministic
from mlcl.training.embeddings import RankRows
from mlcl.training.evaluator import Evaluation, Evaluator
from mlcl.training.events import Event, Listener, Stopped
from mlcl.training.features.cache import FeatureCache
from mlcl.training.job_data import JobData
from mlcl.training.loop import Loop
from mlcl.training.loop_settings import Callbacks
from mlcl.training.objective import ContrastiveModel
from mlcl.training.run_files import remove_unfinished, write_results
from mlcl.training.split_metrics import METRIC_NAMES, decision_metrics

LOOK_EVERY = 0.5
"""Seconds between checks for a stop, while another process fits the same baseline."""


@dataclass(frozen=True)
class Outcome:
    """The metrics of an experiment, and whether it was resumed from a checkpoint."""

    metrics: dict[str, float]
    resumed: bool


def run_experiment(
    job_data: JobData,
    *,
    folder: Path,
    context: Context,
    listener: Listener,
    should_stop: Callable[[], bool] = lambda: False,
    test: bool = True,
) -> Outcome | None:
    """Trains and evaluates the network of a job, or fits its baseline.

    Args:
        job_data: The checked job with its data.
        folder: The folder of the run. A network goes on from its checkpoint there, if any.
        context: Rank and device of this process.
        listener: Receives the events on rank 0.
        should_stop: Called after each step; True ends the training with a checkpoint.
        test: Whether to evaluate on the test split, which otherwise stays unread.

    Returns:
        The outcome on rank 0, None on other ranks.

    Raises:
        UserError: The checkpoint is of another job or other data.
        Stopped: A stop was requested.
        Diverged: A loss, a weight or an output is not finite.
    """
    job = job_data.job
    if context.is_main:
        remove_unfinished(folder)
    if job.train.threads is not None:
        _set_threads(job.train.threads)
    if job.baseline is not None:
        return _fitted(job_data, folder, context, listener, should_stop, test)
    with deterministic(job.train.deterministic):
        loop, model, evaluator = _built(job_data, folder, context, listener, should_stop)
        resumed = loop.resume()
        loop.tell("start", note="resumed" if resumed else "")
        began = time.perf_counter()
        loop.run()
        trained = time.perf_counter()
        metrics = _evaluated(job_data, folder, context, loop, model, evaluator, should_stop, test)
        times = {
            "time/train_seconds": trained - began,
            "time/evaluation_seconds": time.perf_counter() - trained,
        }
        if not context.is_main:
            return None
        loop.tell("end", metrics | times)
        return Outcome(metrics | times, resumed)


def _built(
    job_data: JobData, folder: Path, context: Context, listener: Listener, should_stop: Callable[[], bool]
) -> tuple[Loop, ContrastiveModel, Evaluator]:
    """Builds the training loop, its network and the evaluator."""
    model = _seeded_model(job_data, context)
    evaluator = Evaluator(job_data, model, context)
    callbacks = Callbacks(listener, evaluator.quick, should_stop)
    loop = build_loop(job_data, model, context, callbacks, folder / CHECKPOINT)
    return loop, model, evaluator


def _evaluated(
    job_data: JobData,
    folder: Path,
    context: Context,
    loop: Loop,
    model: ContrastiveModel,
    evaluator: Evaluator,
    should_stop: Callable[[], bool],
    test: bool,
) -> dict[str, float]:
    """Evaluates the trained network, writes the result, and returns its metrics."""

    def phase(note: str) -> None:
        loop.tell("phase", note=note)
        # The last epoch's checkpoint is written: a stop here costs the evaluation alone.
        if context.any(should_stop()):
            raise Stopped

    result = evaluator.final(test=test, tell=phase)
    for note in result.notes:
        loop.tell("note", note=note)
    write_results(folder, job_data, result, model)
    return result.metrics


def _seeded_model(job_data: JobData, context: Context) -> ContrastiveModel:
    """Builds a model with equal weights on all ranks, and seeds each rank's own random numbers."""
    seed = job_data.job.train.seed
    seed_all(seed)
    model = build_model(job_data)
    seed_all(seed, context.rank)
    return model.to(context.device)


def _set_threads(threads: int) -> None:
    import faiss

    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)


def _fitted(
    job_data: JobData,
    folder: Path,
    context: Context,
    listener: Listener,
    should_stop: Callable[[], bool],
    test: bool,
) -> Outcome | None:
    """Fits and evaluates the job's baseline, on rank 0 alone."""
    if not context.is_main:
        return None

    def check_stop() -> None:
        if should_stop():
            raise Stopped

    def tell(kind: Literal["start", "phase", "end"], metrics: dict[str, float], note: str = "") -> None:
        listener(Event(kind, 0, 0, 0, 0, metrics, note))

    tell("start", {})
    began = time.perf_counter()
    tell("phase", {}, "baseline")
    found = _baseline_result(job_data, context, test, check_stop)
    fitted = time.perf_counter()
    metrics = {f"baseline/{name}": float(value) for name, value in found.chosen.items()}
    targets = job_data.targets(job_data.dataset.split("validation"))
    decision = job_data.scoring.decide(job_data.task, found.probabilities["validation"], targets)
    metrics |= decision_metrics("", decision)
    for name, probabilities in found.probabilities.items():
        metrics |= job_data.metrics()(
            METRIC_NAMES[name], probabilities, job_data.dataset.split(name), decision
        )
    rows = RankRows(torch.empty(len(job_data.train), 0))
    nothing = {name: torch.empty(len(each), 0) for name, each in found.probabilities.items()}
    write_results(folder, job_data, Evaluation(rows, metrics, nothing, found.probabilities))
    metrics |= {
        "baseline/fit_cpu_seconds": found.seconds,
        "time/train_seconds": fitted - began,
        "time/evaluation_seconds": time.perf_counter() - fitted,
    }
    tell("end", metrics)
    return Outcome(metrics, resumed=False)


@dataclass(frozen=True)
class BaselineResult:
    """Probabilities by split, the settings that validation chose, and the CPU seconds of the fit."""

    probabilities: dict[str, Tensor]
    chosen: dict[str, float]
    seconds: float


def _baseline_result(
    job_data: JobData, context: Context, test: bool, check_stop: Callable[[], None]
) -> BaselineResult:
    """Reads the cached result; the first process that needs it fits the baseline while others wait.

    The result does not depend on the training's seed, so all seeds, sweeps and tables on the data share it.
    """
    file = job_data.cache / "baselines" / f"{_identity(job_data)}-{'test' if test else 'validation'}.npz"
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file.with_suffix(".lock"))
    while True:
        check_stop()
        try:
            with lock.acquire(timeout=LOOK_EVERY):
                return cached(
                    file,
                    lambda: _write_baseline(file, _fit_baseline(job_data, context, test, check_stop)),
                    _read_baseline,
                )
        except Timeout:
            continue


def _fit_baseline(
    job_data: JobData, context: Context, test: bool, check_stop: Callable[[], None]
) -> BaselineResult:
    job, name = job_data.job, job_data.job.baseline
    assert name is not None
    baseline, scoring = BASELINES[name], job_data.scoring
    cache = FeatureCache(job_data.cache, job_data.train, str(context.device))
    began = time.process_time()
    validation = job_data.dataset.split("validation")
    targets, facts = job_data.targets(validation), job_data.facts_of(validation)

    def score(probabilities: Tensor) -> float:
        only = [scoring.metric]
        value = scoring.evaluate(job_data.task, probabilities, targets, only, facts)[scoring.metric]
        return value if scoring.mode == "max" else -value

    rows = read_rows(baseline, job, cache, validation)
    fitted = baseline.fit(
        Problem(
            task=job_data.task,
            n_classes=job_data.space.n_classes,
            rows=read_rows(baseline, job, cache, job_data.train),
            targets=job_data.targets(job_data.train),
            validation=rows,
            score=score,
            check_stop=check_stop,
        )
    )
    probabilities = {"validation": fitted.probabilities(rows)}
    if test:
        tested = read_rows(baseline, job, cache, job_data.dataset.split("test"))
        probabilities["test"] = fitted.probabilities(tested)
    return BaselineResult(probabilities, dict(fitted.chosen), time.process_time() - began)


def _identity(job_data: JobData) -> str:
    """Returns the cache key: version, data and the job without the keys that only train networks."""
    job = job_data.job
    classifier = job.objective.classifier.model_copy(update={"weight": "remainder"})
    plain = job.model_copy(
        update={
            "experiment": "any",
            "objective": ObjectiveConfig(classifier=classifier),
            "train": TrainConfig(epochs=1, batch_size=2),
        }
    )
    return f"{mlcl.__version__}-{job_data.fingerprint}-{job_hash(plain)}"


def _write_baseline(file: Path, found: BaselineResult) -> None:
    arrays = {name: values.numpy() for name, values in found.probabilities.items()}
    about = json.dumps({"chosen": found.chosen, "seconds": found.seconds})
    with new_file(file) as work, work.open("wb") as stream:
        np.savez(stream, allow_pickle=False, about=np.array(about), **arrays)


def _read_baseline(file: Path) -> BaselineResult:
    with np.load(file, allow_pickle=False) as arrays:
        about = json.loads(str(arrays["about"]))
        probabilities = {name: torch.from_numpy(arrays[name]) for name in METRIC_NAMES if name in arrays}
    return BaselineResult(probabilities, about["chosen"], about["seconds"])
