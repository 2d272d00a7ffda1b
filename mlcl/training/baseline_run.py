"""A baseline in place of a network: fitted to the job's training rows, chosen on validation, tested once.

The seed of the training has no part in it. So the probabilities are kept in the cache, and the runs of other
seeds, sweeps and tables on the same data take them from there.
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
from mlcl.baselines import BASELINES, Problem
from mlcl.config import job_hash
from mlcl.config.objective_section import ObjectiveConfig
from mlcl.config.train_section import TrainConfig
from mlcl.data.cache_entries import cached
from mlcl.files import new_file
from mlcl.training.baseline_job import read_rows
from mlcl.training.context import Context
from mlcl.training.evaluation_result import Evaluation
from mlcl.training.events import Event, Listener, Stopped
from mlcl.training.feature_cache import FeatureCache
from mlcl.training.files import write_baseline
from mlcl.training.job_data import JobData
from mlcl.training.neighbours import RankRows
from mlcl.training.split_metrics import decision_figures

FOLDER = "baselines"
NAMES = {"validation": "val", "test": "test"}
LOOK_EVERY = 0.5
"""Seconds between questions whether to stop, while another process fits the same baseline."""


@dataclass(frozen=True)
class Predictions:
    """Probabilities by split, the settings that validation chose, and the CPU seconds of the fit."""

    probabilities: dict[str, Tensor]
    chosen: dict[str, float]
    seconds: float


def run_baseline(
    job_data: JobData,
    *,
    folder: Path,
    context: Context,
    listener: Listener,
    should_stop: Callable[[], bool],
    test: bool,
) -> dict[str, float] | None:
    """Fits and evaluates the job's baseline; the metrics on rank 0, None on the others, which have no part.

    Writes the run's files. Raises Stopped after a requested stop.
    """
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
    found = _predictions(job_data, context, test, check_stop)
    fitted = time.perf_counter()
    metrics = {f"baseline/{name}": float(value) for name, value in found.chosen.items()}
    targets = job_data.targets(job_data.dataset.split("validation"))
    decision = job_data.scoring.decide(job_data.task, found.probabilities["validation"], targets)
    metrics |= decision_figures("", decision)
    for name, probabilities in found.probabilities.items():
        metrics |= job_data.metrics()(NAMES[name], probabilities, job_data.dataset.split(name), decision)
    rows = RankRows(torch.empty(len(job_data.train), 0))
    nothing = {name: torch.empty(len(each), 0) for name, each in found.probabilities.items()}
    write_baseline(folder, job_data, Evaluation(rows, metrics, nothing, found.probabilities))
    metrics |= {
        "baseline/fit_cpu_seconds": found.seconds,
        "time/train_seconds": fitted - began,
        "time/evaluation_seconds": time.perf_counter() - fitted,
    }
    tell("end", metrics)
    return metrics


def _predictions(
    job_data: JobData, context: Context, test: bool, check_stop: Callable[[], None]
) -> Predictions:
    """From the cache, which the first process that asks fills; the others wait for it."""
    file = job_data.cache / FOLDER / f"{_identity(job_data)}-{'test' if test else 'validation'}.npz"
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file.with_suffix(".lock"))
    while True:
        check_stop()
        try:
            with lock.acquire(timeout=LOOK_EVERY):
                return cached(file, lambda: _write(file, _fit(job_data, context, test, check_stop)), _read)
        except Timeout:
            continue


def _fit(job_data: JobData, context: Context, test: bool, check_stop: Callable[[], None]) -> Predictions:
    job, name = job_data.job, job_data.job.baseline
    assert name is not None
    baseline, scoring = BASELINES[name], job_data.scoring
    cache = FeatureCache(job_data.cache, job_data.train, str(context.device))
    began = time.process_time()
    validation = job_data.dataset.split("validation")
    targets, facts = job_data.targets(validation), job_data.facts_of(validation)

    def figure(probabilities: Tensor) -> float:
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
            figure=figure,
            check_stop=check_stop,
        )
    )
    probabilities = {"validation": fitted.probabilities(rows)}
    if test:
        tested = read_rows(baseline, job, cache, job_data.dataset.split("test"))
        probabilities["test"] = fitted.probabilities(tested)
    return Predictions(probabilities, dict(fitted.chosen), time.process_time() - began)


def _identity(job_data: JobData) -> str:
    """What decides a baseline's probabilities: nothing of the training of a network has a part in them."""
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


def _write(file: Path, found: Predictions) -> None:
    arrays = {name: values.numpy() for name, values in found.probabilities.items()}
    about = json.dumps({"chosen": found.chosen, "seconds": found.seconds})
    with new_file(file) as work, work.open("wb") as stream:
        np.savez(stream, allow_pickle=False, about=np.array(about), **arrays)


def _read(file: Path) -> Predictions:
    with np.load(file, allow_pickle=False) as arrays:
        about = json.loads(str(arrays["about"]))
        probabilities = {name: torch.from_numpy(arrays[name]) for name in NAMES if name in arrays}
    return Predictions(probabilities, about["chosen"], about["seconds"])
