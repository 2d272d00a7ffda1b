"""One experiment, from a checked job to its metrics and files; in a process, a worker or a trial."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlcl.config import job_hash
from mlcl.training.baseline_run import run_baseline
from mlcl.training.builders import build_loop, build_model
from mlcl.training.checkpoint import CHECKPOINT, seed_all
from mlcl.training.context import Context, deterministic
from mlcl.training.evaluator import Evaluator
from mlcl.training.events import Listener, Stopped
from mlcl.training.files import remove_unfinished, write_results
from mlcl.training.job_data import JobData
from mlcl.training.loop_settings import Callbacks
from mlcl.training.objective import ContrastiveModel


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
    """Trains and evaluates a job, going on from `folder`'s checkpoint where there is one.

    A job with a `baseline` fits that in place of its network, see `run_baseline`.
    Returns the outcome on rank 0, None elsewhere. `test=False` leaves the test split unread.
    Raises UserError for a checkpoint of something else, Stopped after a requested stop, Diverged on a NaN.
    """
    job = job_data.job
    if context.is_main:
        remove_unfinished(folder)
    if job.train.threads is not None:
        _set_threads(job.train.threads)
    if job.baseline is not None:
        fitted = run_baseline(
            job_data, folder=folder, context=context, listener=listener, should_stop=should_stop, test=test
        )
        return None if fitted is None else Outcome(fitted, resumed=False)
    with deterministic(job.train.deterministic):
        return _trained(job_data, folder, context, listener, should_stop, test)


def _trained(
    job_data: JobData,
    folder: Path,
    context: Context,
    listener: Listener,
    should_stop: Callable[[], bool],
    test: bool,
) -> Outcome | None:
    """`run_experiment` of a network."""
    job = job_data.job
    model = _seeded_model(job_data, context)
    evaluator = Evaluator(job_data, model, context)
    loop = build_loop(
        job,
        model,
        job_data.rows(job_data.train),
        job_data.sampler(context.rank, context.world_size),
        context,
        checkpoint=folder / CHECKPOINT,
        identity={"job_hash": job_hash(job), "fingerprint": job_data.fingerprint},
        callbacks=Callbacks(listener, evaluator.quick, should_stop),
    )
    resumed = loop.resume()
    loop.tell("start", note="resumed" if resumed else "")
    began = time.perf_counter()
    loop.run()
    trained = time.perf_counter()

    def phase(note: str) -> None:
        loop.tell("phase", note=note)
        # The last epoch's checkpoint is written: a stop here costs the evaluation alone.
        if context.any(should_stop()):
            raise Stopped

    result = evaluator.final(test=test, tell=phase)
    for note in result.notes:
        loop.tell("note", note=note)
    write_results(folder, job_data, model, result)
    if not context.is_main:
        return None
    times = {
        "time/train_seconds": trained - began,
        "time/evaluation_seconds": time.perf_counter() - trained,
    }
    metrics = result.metrics | times
    loop.tell("end", metrics)
    return Outcome(metrics, resumed)


def _seeded_model(job_data: JobData, context: Context) -> ContrastiveModel:
    """A model with the same first weights on every rank; after it each rank has random numbers of its own."""
    seed = job_data.job.train.seed
    seed_all(seed)
    model = build_model(
        job_data.job,
        job_data.dataset.info,
        job_data.vocabulary_size,
        job_data.label_graph(),
        job_data.class_distances(),
        job_data.target_weight(),
        job_data.input_columns,
    )
    seed_all(seed, context.rank)
    return model.to(context.device)


def _set_threads(threads: int) -> None:
    import faiss
    import torch

    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
