"""One experiment from a checked job to its figures and files: the same in a process, a worker or a trial."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlcl.config import job_hash
from mlcl.training.assess import Assessment, Assessor
from mlcl.training.build import build_loop, build_model
from mlcl.training.context import Context
from mlcl.training.events import Event, Listener, Stopped
from mlcl.training.files import write_results
from mlcl.training.material import Material
from mlcl.training.seeding import seed_all

CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True)
class Outcome:
    """What an experiment gave: figures, whether it went on from a checkpoint, seconds of training."""

    metrics: dict[str, float]
    resumed: bool
    train_seconds: float
    evaluation_seconds: float


def run_experiment(
    material: Material,
    *,
    folder: Path,
    context: Context,
    listener: Listener,
    should_stop: Callable[[], bool] = lambda: False,
    test: bool = True,
) -> Outcome | None:
    """Trains and evaluates the material's job, going on from `folder`'s checkpoint where there is one.

    Returns the outcome on rank 0, None elsewhere. `test=False` leaves the test split unread.
    Raises UserError for a checkpoint of something else, Stopped after a requested stop, Diverged on a NaN.
    """
    job = material.job
    if job.train.threads is not None:
        _set_threads(job.train.threads)
    # The same first weights on every rank; from then on each rank draws its own dropout and views.
    seed_all(job.train.seed)
    model = build_model(job, material.dataset.info, material.vocabulary_size).to(context.device)
    seed_all(job.train.seed, context.rank)
    assessor = Assessor(material, model, context)
    loop = build_loop(
        job,
        model,
        material.rows(material.train),
        context,
        checkpoint=folder / CHECKPOINT,
        identity={"job_hash": job_hash(job), "fingerprint": material.fingerprint},
        listener=listener,
        validate=assessor.quick,
        should_stop=should_stop,
    )
    resumed = loop.resume()

    def tell(kind: str, note: str = "", metrics: dict[str, float] | None = None) -> None:
        if context.is_main:
            at = loop.position
            listener(Event(kind, at.epoch, loop.epochs, at.step, loop.steps, metrics or {}, note))  # type: ignore[arg-type]

    tell("start", "resumed" if resumed else "")
    began = time.perf_counter()
    loop.run()
    trained = time.perf_counter()

    def phase(note: str) -> None:
        tell("phase", note)
        # The last epoch's checkpoint is written: a stop here costs the evaluation alone. Only rank 0 goes
        # through the phases between these two.
        if note in ("embedding", "test") and context.any(should_stop()):
            raise Stopped

    assessment: Assessment | None = assessor.final(test=test, tell=phase)
    if assessment is None:
        return None
    write_results(folder, material, model, assessment)
    ended = time.perf_counter()
    metrics = assessment.metrics | {
        "time/train_seconds": trained - began,
        "time/evaluation_seconds": ended - trained,
    }
    tell("end", metrics=metrics)
    return Outcome(metrics, resumed, trained - began, ended - trained)


def _set_threads(threads: int) -> None:
    import faiss
    import torch

    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
