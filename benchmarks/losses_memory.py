"""Measures the peak memory of one pass, in a process of its own.

The figure is the growth of the resident set over its size just before the pass, which includes the inputs. It
is read from the kernel's high-water mark, which is reset just before. Unlike a sampling thread, which misses
peaks shorter than its interval, the mark is exact. Systems other than Linux have no such mark, and no figure.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from losses_scenes import Case, one_pass

WARM_UP_ROWS = 512
MOST_GIB = 8
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Peak:
    """A peak in MiB above the inputs, None if it is unknown; `problem` says why the pass did not end."""

    mib: float | None = None
    problem: str | None = None


def peak(contender: str, case: Case, patience: float) -> Peak:
    """Returns the peak of one pass. A pass that takes more than `patience` seconds of CPU time is killed."""
    # Freed blocks return to the kernel at once: memory that the heap keeps from earlier calls hides growth.
    os.environ |= {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    # The fork server has imported everything and computed nothing; it forks a process for each case.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "mlcl.losses", "pytorch_metric_learning.losses"])
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(sender, contender, case, patience))
    child.start()
    sender.close()
    try:
        result: Peak = receiver.recv()
        return result
    except EOFError:
        child.join()
        late = child.exitcode == -signal.SIGKILL
        return Peak(problem=f"over {patience:g} s" if late else "its process ended without an answer")
    finally:
        child.kill()
        child.join()


def _child(sender: Connection, contender: str, case: Case, patience: float) -> None:
    torch.set_num_threads(1)
    # Only the data is limited: the libraries' address space is large and uses no memory.
    _limit(resource.RLIMIT_DATA, MOST_GIB << 30)
    one_pass(contender, replace(case, rows=min(WARM_UP_ROWS, case.rows)))()
    run = one_pass(contender, case)
    _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + patience))
    sender.send(_growth(run))


def _limit(kind: int, value: int) -> None:
    resource.setrlimit(kind, (value, value))


def _growth(run: Callable[[], float]) -> Peak:
    marked = RESET.exists()
    if marked:
        RESET.write_text("5")
    before = _high_water_mark() if marked else 0.0
    try:
        run()
    except RuntimeError as problem:
        if "allocate" not in str(problem):
            raise
        return Peak(problem=f"over {MOST_GIB} GiB")
    return Peak(_high_water_mark() - before if marked else None)


def _high_water_mark() -> float:
    """Returns the high-water mark in MiB since the reset."""
    match = re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text())
    assert match is not None
    return int(match[1]) / 1024
