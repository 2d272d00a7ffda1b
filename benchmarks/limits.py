"""Measures the rates that one core can reach, and those of the steps of a training.

    python benchmarks/limits.py [--seconds 3] [--only step loss]

A run first measures the core: the rate of a matrix product (GEMM) in float32 and bf16, of copies in memory,
and of a file written with fsync. The limit of a piece of work is the time that its arithmetic takes at the
GEMM's rate; if its bytes are a pass over all weights, their time at the memory's rate is added. PyTorch
counts the operations of products, convolutions and attention; sums over sparse rows count as products of
their entries. Work that needs no product has as its limit the time of another program for the part that
cannot be left out; the printed line names this program.

Everything runs on one thread. Seconds are the CPU time of the process, the best of several rounds, except for
the disk, which is measured by the clock.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import faiss
import torch
from limits_works import (
    Work,
    delivery_works,
    evaluation_work,
    loss_works,
    probe_work,
    retrieval_work,
    step_works,
)

from mlcl.torch_versions import cpu_capabilities

SIDE = 2_048
"""The number of rows and columns of the GEMM's matrices."""
COPIED = 1 << 28
WRITTEN = 1 << 28
"""The bytes of the file that is written to measure the disk."""


@dataclass(frozen=True)
class Machine:
    """The rates of one core: floating-point operations and bytes per second."""

    seconds: float

    @cached_property
    def gemm(self) -> dict[str, float]:
        rates = {}
        for name, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
            a, b = (torch.randn(SIDE, SIDE).to(dtype) for _ in range(2))
            rates[name] = 2 * SIDE**3 / best(lambda a=a, b=b: torch.mm(a, b), self.seconds)
        return rates

    @cached_property
    def memory(self) -> float:
        source, target = torch.ones(COPIED // 4), torch.empty(COPIED // 4)
        return 2 * COPIED / best(lambda: target.copy_(source), self.seconds)

    @cached_property
    def disk(self) -> float:
        block = os.urandom(WRITTEN)
        with tempfile.TemporaryFile() as file:

            def write() -> None:
                file.seek(0)
                file.write(block)
                os.fsync(file.fileno())

            return WRITTEN / best(write, self.seconds, time.perf_counter)

    def limit(self, work: Work) -> float:
        """Returns the least number of seconds that the work can take."""
        return work.flop / self.gemm[work.precision] + work.bytes / self.memory + work.written / self.disk


def best(work: Callable[[], object], seconds: float, clock: Callable[[], float] = time.process_time) -> float:
    """Returns the least time of a call, over at least three calls and `seconds` seconds."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def works(home: Path) -> dict[str, Callable[[], Iterator[Work]]]:
    return {
        "loss": loss_works,
        "step": lambda: step_works(home),
        "evaluation": evaluation_work,
        "probe": probe_work,
        "retrieval": retrieval_work,
        "delivery": delivery_works,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="for each work, about")
    parser.add_argument("--home", type=Path, default=Path("outputs"))
    parser.add_argument("--only", nargs="+", choices=list(works(Path())), metavar="NAME")
    args = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    machine = Machine(args.seconds)
    capabilities = cpu_capabilities()
    flags = ", ".join(name for name in ("avx512_f", "avx512_bf16", "amx_bf16") if capabilities.get(name))
    print(
        f"{capabilities.get('cpu_name', platform.machine())} ({flags}), torch {torch.__version__}, one thread"
    )
    gemm = machine.gemm
    print(f"GEMM {gemm['float32'] / 1e9:.0f} GFLOP/s in float32, {gemm['bf16'] / 1e9:.0f} in bf16")
    print(f"memory {machine.memory / 1e9:.1f} GB/s copied, disk {machine.disk / 1e6:.0f} MB/s written\n")
    print("| work | ms | limit ms | ratio | limit |\n|---|---:|---:|---:|---|", flush=True)
    for name, work_factory in works(args.home).items():
        for work in work_factory() if args.only is None or name in args.only else ():
            limit = machine.limit(work) if work.floor is None else best(work.floor, args.seconds)
            seconds = best(work.run, args.seconds)
            figures = f"{1e3 * seconds:.4g} | {1e3 * limit:.4g} | {seconds / limit:.1f}"
            print(f"| {name}: {work.name} | {figures} | {work.limit} |", flush=True)


if __name__ == "__main__":
    main()
