"""What each process does for the micro-batches of tests/training/test_distributed.py."""

from pathlib import Path

import torch
from builders import tiny_job
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from training.training_ranks import start

from mlcl.testing.ranks import finish
from mlcl.training.builders import build_loop, build_model
from mlcl.training.checkpoint import seed_all
from mlcl.training.context import Context
from mlcl.training.grad_cache import Passes
from mlcl.training.job_data import JobData
from mlcl.training.loop_settings import Callbacks


def made(job, folder, rank, wrap=lambda encoder: encoder):
    job_data = JobData.of(job, Path(folder) / "home")
    seed_all(job.train.seed)
    model = build_model(job_data)
    model.encoder = wrap(model.encoder)
    seed_all(job.train.seed, rank)
    return job_data, model


def rounds_rank(rank, world, folder, data):
    """Counts rounds of DDP's averaging over two steps; ranks have 4 and 2 micro-batches."""
    start(rank, world, folder, "rounds")
    context = Context.current("cpu")
    job_data, model = made(tiny_job(Path(data)), folder, rank)
    wrapped = DistributedDataParallel(model)
    rounds = []

    def count(state, bucket):
        rounds.append(bucket.is_last())
        state.all_reduce(bucket.buffer().div_(world))
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    wrapped.register_comm_hook(torch.distributed, count)
    passes = Passes(model, wrapped, context, "float32", 2, 7)
    samples = torch.arange(11).split((7, 4))[rank]
    counts = []
    for _ in range(2):
        model.zero_grad()
        passes(job_data.rows(job_data.train).batch(samples, 2, context.device), 2)
        counts.append(sum(rounds))
        rounds.clear()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    torch.save({"rounds": counts, "gradients": gradients}, f"{folder}/rank{rank}.pt")
    finish(rank, world, folder)


class Limited(nn.Module):
    """An encoder that runs out of memory above so many rows, where `with_graph` says: on this rank alone."""

    def __init__(self, encoder, rows, with_graph):
        super().__init__()
        self.encoder, self.dim, self.rows, self.with_graph = encoder, encoder.dim, rows, with_graph

    def forward(self, **inputs):
        if len(inputs["input_ids"]) > self.rows and torch.is_grad_enabled() is self.with_graph:
            raise torch.OutOfMemoryError("made for the test")
        return self.encoder(**inputs)


def memory_rank(rank, world, folder, data):
    """A run in micro-batches of 2; then two of 4 that on rank 1 fit with 2 alone: in either pass."""
    start(rank, world, folder, "memory")
    answers = []
    for size, with_graph in ((2, None), (4, False), (4, True)):
        job = tiny_job(Path(data), micro_batch_size=size, epochs=2)
        limit = 4 if rank == 1 else 100
        job_data, model = made(job, folder, rank, lambda e, n=limit, g=with_graph: Limited(e, n, g))
        events = []
        callbacks = Callbacks(events.append, dict, lambda: False)
        loop = build_loop(job_data, model, Context.current("cpu"), callbacks)
        loop.run()
        answers.append(
            {
                "weights": model.state_dict(),
                "size": loop.micro_batch,
                "curve": [e.metrics["train/loss"] for e in events if "train/loss" in e.metrics],
            }
        )
    torch.save(answers, f"{folder}/rank{rank}.pt")
    finish(rank, world, folder)
