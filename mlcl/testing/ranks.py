"""Starts the processes of a test with several ranks; importable by another process."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from mlcl.losses import LOSSES, LearnedTemperature, build_loss, tiling
from mlcl.testing.loss_batches import LossBatch, take

PATIENCE = timedelta(seconds=300)
TAU = 0.3


def run_ranks(function: Callable[..., None], args: tuple[Any, ...], world: int) -> None:
    """Runs `function(rank, *args)` in `world` processes until they end; raises the error of any of them.

    They are forked from a server that has imported torch (with `torch._dynamo`, which the first optimiser
    imports) and mlcl: spawned processes would each import them again.
    `args` may hold about two hundred tensors at most: each is sent as an open file.
    """
    multiprocessing.set_forkserver_preload([__name__, "mlcl.training.experiment", "torch._dynamo"])
    mp.start_processes(  # type: ignore[attr-defined, no-untyped-call]
        function, args=args, nprocs=world, start_method="forkserver"
    )


def losses_on_ranks(
    cases: Sequence[tuple[str, dict[str, Any]]],
    batch: LossBatch,
    split: Sequence[int],
    folder: Path,
    modules: Sequence[str] = (),
) -> list[list[dict[str, torch.Tensor]]]:
    """Computes the `value` and own `gradient` of each case on each rank, which has `split[rank]` rows.

    `modules` declare losses that are in no installed package.
    """
    run_ranks(_answer, (tuple(split), str(folder), list(cases), batch, list(modules)), len(split))
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(len(split))]


def _answer(
    rank: int,
    split: Sequence[int],
    folder: str,
    cases: Sequence[tuple[str, dict[str, Any]]],
    batch: LossBatch,
    modules: Sequence[str],
) -> None:
    torch.set_num_threads(1)
    tiling.TILE = 4
    for module in modules:
        LOSSES.add(import_module(module), "a test")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=len(split),
        timeout=PATIENCE,
    )
    rows = torch.split(torch.arange(sum(split)), list(split))[rank]
    answers = []
    for name, options in cases:
        z = batch.z[rows].clone().requires_grad_()
        temperature = LearnedTemperature(TAU).double()
        loss = build_loss(name, temperature=temperature, gather=True, **options)
        value = loss(z, take(batch.labels(name), rows), batch.sample_ids()[rows])
        torch.autograd.backward(value)
        answers.append({"value": value.detach(), "gradient": z.grad})
    torch.save(answers, f"{folder}/{rank}.pt")
    dist.barrier()
    finish(rank, len(split), folder)


def finish(rank: int, world: int, folder: str) -> None:
    """Ends this process at once when all ranks have reached this call, without destroying the group.

    About one orderly exit in ten aborts ("terminate called without an active exception"), because a native
    thread of the group still runs. All files have been written by then.
    """
    done = [Path(folder) / f"done{r}" for r in range(world)]
    done[rank].touch()
    while not all(path.exists() for path in done):
        time.sleep(0.02)
    os._exit(0)
