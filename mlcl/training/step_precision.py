"""Finds the precision of a job with `train.precision: auto`, by timing a training step in each precision."""

from __future__ import annotations

import torch

from mlcl.config import JobConfig, dump_job, load_job
from mlcl.training.batches import build_sampler
from mlcl.training.builders import build_model
from mlcl.training.context import Context, own_process_state, pick_device
from mlcl.training.grad_cache import Passes, fit, least_samples
from mlcl.training.job_data import JobData
from mlcl.training.precision import Precision, Work, faster_precision

AUTO = "auto"
SHAPE = ("batch_size", "micro_batch_size", "views", "workers", "threads", "device")
"""The keys of `train` that, with encoder, objective and data set, identify a measurement in the cache."""


def in_precision(job: JobConfig, precision: Precision) -> JobConfig:
    """Returns the job with `precision` in place of `auto`; a job with a given precision stays unchanged."""
    if job.train.precision != AUTO:
        return job
    return load_job(dump_job(job), {"train.precision": precision})


def step_precision(job_data: JobData) -> Precision:
    """Returns the precision that `faster_precision` finds for a job's training step, without the optimiser.

    The step is timed once for each machine and shape of a training. The device is that of this process, and
    the random state stays unchanged. For a baseline, which has no steps, returns float32.
    """
    job = job_data.job
    if job.baseline is not None:
        return "float32"
    tree, device = dump_job(job), pick_device(job.train.device)
    description = {"encoder": tree["encoder"], "objective": tree["objective"], "data": job_data.fingerprint}
    description |= {"train": {key: tree["train"][key] for key in SHAPE}}
    with own_process_state(job.train.threads):
        return faster_precision(job_data.cache, device, description, lambda: _build_step(job_data, device))


def _build_step(job_data: JobData, device: torch.device) -> Work:
    """Returns a function that computes the gradient of the first worker's first batch, not compiled."""
    train, context = job_data.job.train, Context(device)
    model = build_model(job_data).to(device).train()
    indices = next(iter(build_sampler(job_data.job, job_data.train, 0, train.workers).batches(0, 0)))
    batch = job_data.encode(job_data.train).batch(indices, job_data.job.views, device)
    share = len(indices)
    size, minimum = min(share, train.micro_batch_size or share), least_samples(model.encoder)

    def step(precision: Precision) -> None:
        passes = Passes(model, model, context, precision, job_data.job.views, share)
        fit(lambda samples: passes(batch, samples), size, minimum, model, context.world_size)

    return step
