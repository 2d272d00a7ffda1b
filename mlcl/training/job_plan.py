"""The plan of one training, a part of what `--dry-run` prints."""

from __future__ import annotations

from typing import Any

from mlcl.config import job_hash
from mlcl.samplers import EpochSampler
from mlcl.training.job_data import JobData


def job_plan(job_data: JobData) -> dict[str, Any]:
    """Returns data, task and steps of a job as plain data."""
    job, info = job_data.job, job_data.dataset.info
    sampler = EpochSampler(
        len(job_data.train), job.train.batch_size, job.train.seed, drop_last=job.train.drop_last
    )
    return {
        "experiment": job.experiment,
        "job_hash": job_hash(job),
        "data": {
            "name": info.name,
            "fingerprint": job_data.fingerprint,
            "train": len(job_data.train),
            "validation": len(job_data.dataset.split("validation")),
        },
        "task": job_data.task,
        "training": {
            "epochs": job.train.epochs,
            "steps_per_epoch": sampler.steps_per_epoch,
            "steps": job.train.epochs * sampler.steps_per_epoch,
            "rows_per_step": job.train.batch_size * job.views,
            "workers": job.train.workers,
        },
    }
