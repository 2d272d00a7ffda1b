"""The functions that each process runs in tests/training/test_distributed.py."""

import itertools
from contextlib import suppress
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from builders import tiny_job
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mlcl.training import checkpoint
from mlcl.training.builders import build_loop, build_model
from mlcl.training.checkpoint import CHECKPOINT, DamagedCheckpointError, load_checkpoint, seed_all
from mlcl.training.context import Context
from mlcl.training.events import Stopped
from mlcl.training.experiment import run_experiment
from mlcl.training.grad_cache import Passes
from mlcl.training.job_data import JobData
from mlcl.training.loop_settings import Callbacks


def loop_of(job, home, device="cpu", change=lambda model: model, checkpoint=None, stop_at=0):
    """Returns a training loop of a job, whose model `change` may change, and the list of its events."""
    job_data, events, steps = JobData.of(job, home), [], itertools.count(1)
    seed_all(job.train.seed)
    context = Context.current(device)
    model = change(build_model(job_data)).to(context.device)
    seed_all(job.train.seed, context.rank)
    callbacks = Callbacks(events.append, dict, lambda: next(steps) == stop_at)
    return build_loop(job_data, model, context, callbacks, checkpoint), events


def windows(events, *names):
    """Returns the metrics of each logging window whose names contain one of `names`."""
    window_metrics = [event.metrics for event in events if "train/loss" in event.metrics]
    return [
        {k: v for k, v in metrics.items() if any(name in k for name in names)} for metrics in window_metrics
    ]


def float64_run(job, home, device="cpu"):
    """Trains in float64, alone or in a process group, and returns weights, windows and steps."""
    loop, events = loop_of(job, home, device, lambda model: model.double())
    loop.run()
    weights = {name: weight.cpu() for name, weight in loop.model.state_dict().items()}
    loss_windows = windows(events, "train/loss", "gradient")
    return {"weights": weights, "windows": loss_windows, "steps": loop.position.step}


def equal_rank(_rank, folder, data, overrides, device="cpu"):
    embeddings, labels, all_gather = [], [], dist.all_gather

    def counted(gathered, tensor, **options):
        if tensor.is_floating_point() and tensor.ndim == 2:  # only embeddings are floating-point matrices
            embeddings.append(tensor.shape[1])
        elif tensor.dtype == torch.int64:
            labels.append(len(tensor))
        return all_gather(gathered, tensor, **options)

    with mock.patch.object(dist, "all_gather", counted):
        output = float64_run(tiny_job(data, *overrides), folder / "home", device)
    return output | {"embeddings": embeddings, "labels": labels}


def trained_rank(_rank, folder, data, overrides):
    """Trains and returns the weights and statistics of a rank."""
    loop, _ = loop_of(tiny_job(data, *overrides), folder / "home")
    loop.run()
    return loop.model.state_dict()


def resume_rank(rank, folder, data):
    """Runs a job to its end, with a stop asked by rank 1, and with a stop and a damaged last checkpoint."""
    job, context = tiny_job(data, checkpoint_every=1), Context.current("cpu")

    def run(name, **options):
        job_data = JobData.of(job, folder / "home")
        return run_experiment(
            job_data, folder=folder / name, context=context, listener=lambda _: None, **options
        )

    def stopped(name):
        calls = []
        with suppress(Stopped):
            run(name, should_stop=lambda: calls.append(rank) or (rank == 1 and len(calls) == 8))
        dist.barrier()  # rank 0 has written the checkpoint before any rank goes on

    outcomes = [run("whole")]
    stopped("parts")
    outcomes.append(run("parts"))
    stopped("damaged")
    with mock.patch.object(checkpoint, "load_checkpoint", damaged if rank == 0 else load_checkpoint):
        outcomes.append(run("damaged"))
    return [outcome.metrics for outcome in outcomes] if rank == 0 else None


def damaged(path: Path, **identity):
    """Loads a checkpoint, but raises an error for the last one as if it were damaged."""
    if path.name == CHECKPOINT:
        raise DamagedCheckpointError("not a readable checkpoint", file=path, found="a bit")
    return load_checkpoint(path, **identity)


def rounds_rank(rank, folder, data):
    """Counts DDP's averaging rounds in each of two steps; the two ranks have 4 and 2 micro-batches."""
    context, job_data = Context.current("cpu"), JobData.of(tiny_job(data), folder / "home")
    seed_all(0)
    model = build_model(job_data)
    ddp_model, rounds, counts = DistributedDataParallel(model), [], []

    def count(state, bucket):
        rounds.append(bucket.is_last())
        state.all_reduce(bucket.buffer().div_(context.world_size))
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    ddp_model.register_comm_hook(torch.distributed, count)
    passes = Passes(model, ddp_model, context, "float32", 2, 7)
    samples = torch.arange(11).split((7, 4))[rank]
    for _ in range(2):
        model.zero_grad()
        passes(job_data.encode(job_data.train).batch(samples, 2, context.device), 2)
        counts.append(sum(rounds))
        rounds.clear()
    return {"rounds": counts, "gradients": {name: p.grad for name, p in model.named_parameters()}}


class Limited(nn.Module):
    """An encoder that runs out of memory above `rows` rows, in passes with a graph, without, or both."""

    def __init__(self, encoder, rows, with_graph=(False, True)):
        super().__init__()
        self.encoder, self.dim, self.rows, self.with_graph = encoder, encoder.dim, rows, with_graph
        self.failed = []

    def forward(self, **inputs):
        z = self.encoder(**inputs)
        if self.training and len(z) > self.rows and torch.is_grad_enabled() in self.with_graph:
            self.failed.append(len(z))
            raise torch.OutOfMemoryError("made for the test")
        return z


def limited(rows, with_graph=(False, True)):
    """Returns a function that replaces a model's encoder by a `Limited` one."""

    def change(model):
        model.encoder = Limited(model.encoder, rows, with_graph)
        return model

    return change


def memory_rank(rank, folder, data):
    """Trains with micro-batches of 2, then twice with 4, which rank 1 cannot hold in one of the passes."""
    outputs = []
    for size, with_graph in ((2, ()), (4, (False,)), (4, (True,))):
        job, change = (
            tiny_job(data, micro_batch_size=size, epochs=2),
            limited(4 if rank == 1 else 100, with_graph),
        )
        loop, events = loop_of(job, folder / "home", change=change)
        loop.run()
        weights, curve = loop.model.state_dict(), windows(events, "train/loss")
        outputs.append({"weights": weights, "size": loop.micro_batch, "curve": curve})
    return outputs
