"""Decides `train.precision: auto` once, in the process of a command, for all its trainings and workers."""

from __future__ import annotations

from collections.abc import Callable

from mlcl.config import JobConfig
from mlcl.errors import UserError
from mlcl.service.ray.address import on_cluster
from mlcl.training.context import pick_device
from mlcl.training.job_data import JobData
from mlcl.training.precision import PRECISIONS, Precision
from mlcl.training.step_precision import AUTO, step_precision


def decide_precision(
    job_data: JobData, gpus: float | None, is_begun: Callable[[Precision], bool]
) -> Precision:
    """Returns the precision that `train.precision: auto` stands for.

    If an earlier command has begun the trainings in a precision, for which `is_begun` returns True, this
    precision is kept, even on another machine. Otherwise the faster one is measured. `gpus` is the number of
    GPUs per worker, None if Ray decides it. Raises UserError if the precision must be measured but this
    process lacks the GPU that trainings may get.
    """
    earlier_precision = next((precision for precision in PRECISIONS if is_begun(precision)), None)
    if earlier_precision is not None:
        return earlier_precision
    may_have_gpu = bool(gpus) or (gpus is None and on_cluster())
    if may_have_gpu and job_data.job.train.device != "cpu" and pick_device(AUTO).type == "cpu":
        problem = "the command measures it, and has no GPU, unlike the trainings"
        raise UserError(problem, key="train.precision", found=AUTO, allowed=", ".join(PRECISIONS))
    return step_precision(job_data)


def refuse_auto(job: JobConfig, subject: str) -> None:
    """Raises UserError if a job has `train.precision: auto`; its text begins with `subject` (`a table`)."""
    if job.train.precision == AUTO:
        problem = f"{subject} names a precision"
        raise UserError(problem, key="train.precision", found=AUTO, allowed=", ".join(PRECISIONS))
