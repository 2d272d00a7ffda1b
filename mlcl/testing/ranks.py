"""Runs a function in several processes of one process group, for tests with several ranks."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

PATIENCE = timedelta(seconds=1200)


def run_ranks(function: Callable[..., Any], args: tuple[Any, ...], world: int) -> list[Any]:
    """Calls `function(rank, *args)` in a gloo group of `world` processes; returns the results in rank order.

    An exception of any rank is raised here. The processes are forked from a server that has imported torch
    (with `torch._dynamo`, which the first optimiser imports) and mlcl: spawned processes would each import
    them again. `function` must be importable from its module.
    """
    multiprocessing.set_forkserver_preload([__name__, "mlcl.training.experiment", "torch._dynamo"])
    with TemporaryDirectory() as folder:
        torch.save((function, args), f"{folder}/work.pt")
        mp.start_processes(  # type: ignore[attr-defined, no-untyped-call]
            _run_rank, args=(world, Path(folder)), nprocs=world, start_method="forkserver"
        )
        return [torch.load(f"{folder}/{rank}.pt", weights_only=False) for rank in range(world)]


def _run_rank(rank: int, world: int, folder: Path) -> None:
    """Runs one rank, and ends its process when all ranks have an answer, without destroying the group.

    About one orderly exit in ten aborts, because a native thread of the group still runs.
    """
    torch.set_num_threads(1)
    rendezvous = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world, timeout=PATIENCE)
    function, args = torch.load(folder / "work.pt", weights_only=False)
    torch.save(function(rank, *args), folder / f"{rank}.pt")
    dist.barrier()
    markers = [folder / f"done{r}" for r in range(world)]
    markers[rank].touch()
    while not all(path.exists() for path in markers):
        time.sleep(0.02)
    os._exit(0)
