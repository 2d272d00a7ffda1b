"""Measures every node of a cluster: versions, driver, clock, free memory, rates of storage and network."""

from __future__ import annotations

import os
import platform
import secrets
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import ray
import torch
import torch.distributed as dist
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mlcl._version import __version__
from mlcl.service.ray.ddp_worker import choose_interface
from mlcl.training.context import driver_version, unusable_gpu

SECONDS = 60.0
"""Seconds in which a node must answer each question."""
START_SECONDS = 240.0
"""Seconds in which a node must start the process that answers, which may first load an image's libraries."""
STORED = 2**26
"""The number of bytes that are written to the storage and read again."""
REDUCED = 2**26
"""The number of bytes that are summed over the nodes."""
MOST_SKEW = 1.0
"""The difference of two clocks, in seconds, that is a problem."""
SAME = ("python", "torch", "ray", "mlcl")
"""The columns that must be equal on all nodes."""


def check_cluster(storage: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the measurements of each node of the joined Ray cluster, and problems.

    All nodes share the folder `storage`. The network is measured by NCCL between nodes with a GPU, else by
    Gloo between nodes whose CPUs take trainings.
    """
    storage.mkdir(parents=True, exist_ok=True)
    nodes = sorted(
        (node for node in ray.nodes() if node["Alive"]), key=lambda node: node["NodeManagerAddress"]
    )
    actors = [_start_actor(node) for node in nodes]
    rows, problems = [], list[str]()
    for node, actor in zip(nodes, actors, strict=True):
        row = {"node": node["NodeManagerAddress"]}
        try:
            row |= {
                "skew_s": round(_clock_skew(actor), 3),
                **_get_answer(actor.facts.remote()),
                **_get_answer(actor.storage.remote(storage)),
            }
        except Exception as error:
            problems.append(f"{row['node']}: {' '.join(str(error).split())[:200]}")
        rows.append(row)
    kind = "GPU" if any(node["Resources"].get("GPU") for node in nodes) else "CPU"
    numbers = [
        number
        for number, node in enumerate(nodes)
        if node["Resources"].get(kind) and "python" in rows[number]
    ]
    try:
        for number, rate in zip(
            numbers, _network_rates([actors[number] for number in numbers], kind), strict=False
        ):
            rows[number]["all_reduce_gb_s"] = rate
    except Exception as error:
        problems.append(f"all-reduce: {' '.join(str(error).split())[:200]}")
    for actor in actors:
        ray.kill(actor)
    return rows, problems + problems_of(rows)


def problems_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the problems in the measurements: unequal versions, clocks that differ, unusable GPUs."""
    problems = []
    for column in SAME:
        versions = Counter(row[column] for row in rows if column in row)
        if len(versions) > 1:
            majority = versions.most_common(1)[0][0]
            deviations = [
                f"{row[column]} on {row['node']}" for row in rows if row.get(column, majority) != majority
            ]
            problems.append(f"{column} {majority}, but {', '.join(deviations)}")
    for row in rows:
        if abs(row.get("skew_s", 0)) > MOST_SKEW:
            problems.append(f"{row['node']}: its clock differs by {row['skew_s']:.1f} s")
        if row.get("unusable"):
            problems.append(f"{row['node']}: PyTorch cannot use its GPU: {row['unusable']}")
    return problems


class _Node:
    def now(self) -> float:
        return time.time()

    def facts(self) -> dict[str, Any]:
        gpu = torch.cuda.is_available()
        free_gib = torch.cuda.mem_get_info()[0] / 2**30 if gpu else 0.0
        return {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "ray": ray.__version__,
            "mlcl": __version__,
            "gpu": torch.cuda.get_device_name() if gpu else "",
            "driver": driver_version(),
            "unusable": unusable_gpu(),
            "free_gib": round(psutil.virtual_memory().available / 2**30, 1),
            "free_gpu_gib": round(free_gib, 1),
        }

    def storage(self, folder: Path) -> dict[str, float]:
        file, content = folder / f".check-{secrets.token_hex(8)}", os.urandom(STORED)
        try:
            start = time.perf_counter()
            with file.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
                write_end = time.perf_counter()
                with suppress(OSError):  # else the node would read the file from its memory
                    os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            read_start = time.perf_counter()
            same = file.read_bytes() == content
            read_end = time.perf_counter()
        finally:
            file.unlink(missing_ok=True)
        if not same:
            raise RuntimeError(f"{folder} returned other bytes than were written")
        return {
            "write_mb_s": _storage_rate(write_end - start),
            "read_mb_s": _storage_rate(read_end - read_start),
        }

    def address(self) -> str:
        with socket.socket() as sock:
            sock.bind((ray.util.get_node_ip_address(), 0))
            return f"{ray.util.get_node_ip_address()}:{sock.getsockname()[1]}"

    def all_reduce(self, address: str, rank: int, size: int, kind: str) -> float:
        """Returns the bus bandwidth in GB/s: 2 (n - 1) / n of a tensor's bytes, per second of all-reduce."""
        choose_interface()
        backend, device = ("nccl", "cuda") if kind == "GPU" else ("gloo", "cpu")
        limit = timedelta(seconds=SECONDS)
        dist.init_process_group(backend, f"tcp://{address}", rank=rank, world_size=size, timeout=limit)
        try:
            values, times = torch.ones(REDUCED // 4, device=device), []
            for _ in range(4):
                dist.barrier()
                start = time.perf_counter()
                dist.all_reduce(values)
                float(values[0])  # waits for the device
                times.append(time.perf_counter() - start)
        finally:
            dist.destroy_process_group()
        return round(2 * (size - 1) / size * REDUCED / min(times[1:]) / 1e9, 2)


def _start_actor(node: dict[str, Any]) -> Any:
    """Starts the actor on a node, with one of the node's GPUs if it has any."""
    on_node = NodeAffinitySchedulingStrategy(str(node["NodeID"]), soft=False)
    gpus = 1 if node["Resources"].get("GPU") else 0
    return ray.remote(_Node).options(num_cpus=0, num_gpus=gpus, scheduling_strategy=on_node).remote()


def _get_answer(reference: Any) -> Any:
    return ray.get(reference, timeout=SECONDS)


def _clock_skew(actor: Any) -> float:
    """Returns how many seconds a node's clock is ahead of this one's, from the fastest of five answers."""
    ray.get(actor.now.remote(), timeout=START_SECONDS)
    answers = []
    for _ in range(5):
        start = time.time()
        remote_time = _get_answer(actor.now.remote())
        end = time.time()
        answers.append((end - start, remote_time - (start + end) / 2))
    skew: float = min(answers)[1]
    return skew


def _network_rates(actors: Sequence[Any], kind: str) -> list[float]:
    """Returns the rate of all-reduce of each actor; an empty result for fewer than two actors."""
    if len(actors) < 2:
        return []
    address, size = _get_answer(actors[0].address.remote()), len(actors)
    references = [actor.all_reduce.remote(address, rank, size, kind) for rank, actor in enumerate(actors)]
    rates: list[float] = ray.get(references, timeout=2 * SECONDS)
    return rates


def _storage_rate(seconds: float) -> float:
    return round(STORED / max(seconds, 1e-9) / 1e6, 1)
