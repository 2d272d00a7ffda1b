"""What each process does for tests/training/test_distributed.py; importable by a spawned child."""

import json
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from builders import tiny_job
from patience import PATIENCE

from mlcl.testing.ranks import finish
from mlcl.training import checkpoint
from mlcl.training.builders import build_loop, build_model
from mlcl.training.checkpoint import CHECKPOINT, DamagedCheckpointError, load_checkpoint, seed_all
from mlcl.training.context import Context
from mlcl.training.events import Stopped
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData
from mlcl.training.loop_settings import Callbacks


def start(rank, world, folder, name):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/{name}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=PATIENCE),
    )


def float64_weights(job, home, device="cpu"):
    """The weights after training in float64, and the loss of each logging window."""
    answer = float64_run(job, home, device)
    curve = [metrics["train/loss"] for metrics in answer["windows"]]
    return {"weights": answer["weights"], "steps": answer["steps"], "curve": curve}


def logged_gradients(job, home):
    """The gradient norms of each logging window, and the weights after training."""
    answer = float64_run(job, home)
    norms = [{k: v for k, v in metrics.items() if "gradient" in k} for metrics in answer["windows"]]
    return {"norms": norms, "weights": answer["weights"]}


def float64_run(job, home, device="cpu"):
    """The weights after training in float64, from whatever process group is up; rank 0's logged metrics."""
    context, job_data = Context.current(device), JobData.of(job, home)
    seed_all(job.train.seed)
    model, events = build_model(job_data).double(), []
    loop = build_loop(job_data, model, context, Callbacks(events.append, dict, lambda: False))
    loop.run()
    windows = [event.metrics for event in events if "train/loss" in event.metrics]
    weights = {name: weight.cpu() for name, weight in model.state_dict().items()}
    return {"weights": weights, "windows": windows, "steps": loop.position.step}


def equal_rank(rank, world, folder, data, overrides, device="cpu"):
    start(rank, world, folder, "equal")
    embeddings, labels, all_gather = [], [], dist.all_gather

    def counted(parts, own, **how):
        if own.is_floating_point() and own.ndim == 2:  # other values are one a row, or whole numbers
            embeddings.append(own.shape[1])
        elif own.dtype == torch.int64:
            labels.append(len(own))
        return all_gather(parts, own, **how)

    with mock.patch.object(dist, "all_gather", counted):
        answer = float64_weights(tiny_job(Path(data), *overrides), Path(folder) / "home", device)
    answer |= {"embeddings": embeddings, "labels": labels}
    torch.save(answer, f"{folder}/rank{rank}.pt")
    finish(rank, world, folder)


def gradients_rank(rank, world, folder, data, overrides):
    start(rank, world, folder, "gradients")
    answer = logged_gradients(tiny_job(Path(data), *overrides), Path(folder) / "home")
    torch.save(answer, f"{folder}/rank{rank}.pt")
    finish(rank, world, folder)


def resume_rank(rank, world, folder, data):
    """A whole run; one that rank 1 asks to stop; and one whose last checkpoint is damaged then."""
    start(rank, world, folder, "resume")
    job, home = tiny_job(Path(data), checkpoint_every=1), Path(folder) / "home"
    context = Context.current("cpu")

    def run(name, **how):
        return run_experiment(
            JobData.of(job, home),
            folder=Path(folder) / name,
            context=context,
            listener=lambda _: None,
            **how,
        )

    def stopped(name):
        asked = []
        with suppress(Stopped):
            run(name, should_stop=lambda: asked.append(rank) or (rank == 1 and len(asked) == 8))
        dist.barrier()  # rank 0 writes the checkpoint; only within one process could another be faster

    outcomes = [run("whole")]
    stopped("parts")
    outcomes.append(run("parts"))
    stopped("damaged")
    with mock.patch.object(checkpoint, "load_checkpoint", damaged if rank == 0 else load_checkpoint):
        outcomes.append(run("damaged"))
    if rank == 0:
        metrics = [outcome.metrics for outcome in outcomes]
        (Path(folder) / "outcomes.json").write_text(json.dumps(metrics))
    finish(rank, world, folder)


def damaged(path, **identity):
    """What one rank finds damaged, others may not."""
    if path.name == CHECKPOINT:
        raise DamagedCheckpointError("not a readable checkpoint", file=path, found="a bit")
    return load_checkpoint(path, **identity)
