"""The processes of a test with several ranks."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from mlcl.losses import LOSSES, LearnedTemperature, build_loss, tiling
from mlcl.testing.loss_batches import LossBatch, take

PATIENCE = timedelta(seconds=1200)
TAU = 0.3


def run_ranks(function: Callable[..., Any], args: tuple[Any, ...], world: int) -> list[Any]:
    """Calls `function(rank, *args)` in the gloo group of `world` processes; returns each rank's answer.

    An error of any rank is raised here. The processes are forked from a server that has imported torch (with
    `torch._dynamo`, which the first optimiser imports) and mlcl: spawned processes would each import them
    again. Other processes import the function by its module.
    """
    multiprocessing.set_forkserver_preload([__name__, "mlcl.training.experiment", "torch._dynamo"])
    with TemporaryDirectory() as folder:
        torch.save((function, args), f"{folder}/work.pt")
        mp.start_processes(  # type: ignore[attr-defined, no-untyped-call]
            _run, args=(world, Path(folder)), nprocs=world, start_method="forkserver"
        )
        return [torch.load(f"{folder}/{rank}.pt", weights_only=False) for rank in range(world)]


def _run(rank: int, world: int, folder: Path) -> None:
    """Ends the process at once when all ranks have an answer, without destroying the group.

    About one orderly exit in ten aborts ("terminate called without an active exception"), because a native
    thread of the group still runs. All files have been written by then.
    """
    torch.set_num_threads(1)
    meeting = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=PATIENCE)
    function, args = torch.load(folder / "work.pt", weights_only=False)
    torch.save(function(rank, *args), folder / f"{rank}.pt")
    dist.barrier()
    done = [folder / f"done{r}" for r in range(world)]
    done[rank].touch()
    while not all(path.exists() for path in done):
        time.sleep(0.02)
    os._exit(0)


def losses_on_ranks(
    cases: Sequence[tuple[str, dict[str, Any]]],
    batch: LossBatch,
    split: Sequence[int],
    modules: Sequence[str] = (),
) -> list[list[dict[str, torch.Tensor]]]:
    """Computes the `value` and own `gradient` of each case on each rank, which has `split[rank]` rows.

    `modules` declare losses that are in no installed package.
    """
    return run_ranks(_answer, (tuple(split), cases, batch, modules), len(split))


def _answer(
    rank: int,
    split: Sequence[int],
    cases: Sequence[tuple[str, dict[str, Any]]],
    batch: LossBatch,
    modules: Sequence[str],
) -> list[dict[str, torch.Tensor]]:
    tiling.TILE = 4
    for module in modules:
        LOSSES.add(import_module(module), "a test")
    rows = torch.split(torch.arange(sum(split)), list(split))[rank]
    answers = []
    for name, options in cases:
        z = batch.z[rows].clone().requires_grad_()
        temperature = LearnedTemperature(TAU).double()
        loss = build_loss(name, temperature=temperature, gather=True, **options)
        value = loss(z, take(batch.labels(name), rows), batch.sample_ids()[rows])
        torch.autograd.backward(value)
        assert z.grad is not None
        answers.append({"value": value.detach(), "gradient": z.grad})
    return answers
