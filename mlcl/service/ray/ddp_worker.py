"""One rank of a worker group: training, folder's lock, network interface, notes on failed and slow ranks."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import ray
import torch
import torch.distributed as dist
from ray.exceptions import RayActorError, RayTaskError
from ray.train import UserCallback
from ray.train.torch import TorchConfig
from ray.util.queue import Queue

from mlcl.config import load_job
from mlcl.errors import UserError
from mlcl.files import lock_file
from mlcl.service.process.signals import STOP_FILE
from mlcl.service.ray.failures import failure_note
from mlcl.service.ray.folder import enter_workdir
from mlcl.service.ray.references import resolve_references
from mlcl.tracking import RunLog, mlflow_listener
from mlcl.training.context import Context
from mlcl.training.events import Diverged, Event, Listener, Stopped
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData

SLOWER = 3.0
"""A rank is reported if it takes more than this many times the median time of all ranks."""
NODES: list[str] = []
"""The addresses of the nodes of all ranks, in the process of Ray's controller."""


class FailureNotes(UserCallback):
    """A callback of Ray Train that sends a note to the driver for each rank that failed."""

    def __init__(self, events: Queue) -> None:
        self._events = events

    def after_exception(self, run_context: Any, worker_exceptions: Mapping[int, Exception]) -> None:  # noqa: ARG002
        """Called in Ray's controller, before it starts the group again or gives up."""
        for rank, error in sorted(worker_exceptions.items()):
            node = NODES[rank] if rank < len(NODES) else "an unknown node"
            self._events.put(Event("note", 0, 0, 0, 0, note=failure_note(rank, node, error)))


def slow_rank_notes(context: Context) -> list[str]:
    """Times a product of matrices on every rank, all of which must call this; returns `slow_notes`."""
    if context.world_size == 1:
        return []
    measurements = context.objects((ray.util.get_node_ip_address(), _time_product(context.device)))
    return slow_notes([node for node, _ in measurements], [seconds for _, seconds in measurements])


def slow_notes(nodes: Sequence[str], seconds: Sequence[float]) -> list[str]:
    """Returns a note for each rank whose seconds are more than SLOWER times the median of all ranks."""
    median = statistics.median_low(seconds)
    return [
        f"rank {rank} on {node}: {rank_seconds / median:.1f} times slower than the others, which wait for it"
        for rank, (node, rank_seconds) in enumerate(zip(nodes, seconds, strict=True))
        if rank_seconds > SLOWER * median
    ]


def _time_product(device: torch.device) -> float:
    """Returns the shortest time of a product of two matrices, which other processes disturb least."""
    size = 4096 if device.type == "cuda" else 256
    matrix, times = torch.ones(size, size, device=device), []
    for _ in range(6):  # the first one warms up and does not count
        start = time.perf_counter()
        float((matrix @ matrix)[0, 0])  # waits for the device
        times.append(time.perf_counter() - start)
    return min(times[1:])


MAX_FAILURES = 3
"""The number of failed starts of the group that are repeated before the error ends the run."""
WRITER = ".writer.lock"
"""The name of the lock file in the run's folder, which the rank that writes there holds."""
PATIENCE = 60.0
"""Seconds to wait for the lock, which workers of a lost node may still hold, before the group gives up."""
PROGRESS_EVERY = 0.2
"""The least seconds between two progress events to the driver; events with metrics are always sent."""


class GroupConfig(TorchConfig):
    """Ray's configuration of the process group; on several nodes, Gloo uses Ray's network interface."""

    @property
    def backend_cls(self) -> type:
        """The class by which Ray starts the process group."""
        return _Backend


class _Backend(TorchConfig().backend_cls):  # type: ignore[misc] # Ray is untyped
    def __init__(self) -> None:
        self._failure_count = 0

    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        NODES[:] = worker_group.execute(ray.util.get_node_ip_address)
        if len(set(NODES)) > 1:
            worker_group.execute(choose_interface)
        worker_group.execute(_watch_collectives)
        try:
            super().on_start(worker_group, backend_config)
        except RayTaskError as error:
            # A worker fails here before Ray notices that another worker's node is lost. Ray would end the run
            # for an error, but starts the group again for a lost worker.
            self._failure_count += 1
            if self._failure_count > MAX_FAILURES:
                raise
            raise RayActorError(error_msg=str(error)) from error


def choose_interface() -> None:
    """Sets Gloo's interface to that of Ray's address, unless the user has set GLOO_SOCKET_IFNAME."""
    name = interface(ray.util.get_node_ip_address())
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _watch_collectives() -> None:
    """Makes a process end instead of hang when a collective of NCCL fails or exceeds its time limit."""
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")


def interface(address: str) -> str | None:
    """Returns the name of the network interface with this address; None if no interface has it."""
    for name, addresses in psutil.net_if_addrs().items():
        if address in (entry.address for entry in addresses):
            return name
    return None


def work(config: dict[str, Any]) -> dict[str, Any]:
    """Trains as one rank; returns its outcome (`ended`). Ray may restart the group after an exception."""
    enter_workdir(config["cwd"])
    folder, home = Path(config["folder"]), Path(config["home"])
    log = None
    try:
        job_data = _open_data(config["job"], home)
        job = job_data.job
        context = Context.current(job.train.device, gpu_booked=config["gpu"])
        with _lock_writer(folder, context):
            listener = _driver_listener(config["events"])  # called on rank 0 alone
            for note in slow_rank_notes(context):
                if context.is_main:
                    listener(Event("note", 0, 0, 0, 0, note=note))
            if context.is_main and config["log"] is not None:
                log = RunLog.attach(home, config["log"])
                listener = mlflow_listener(log, listener, system=job.tracking.system_metrics)
            outcome = run_experiment(
                job_data,
                folder=folder,
                context=context,
                listener=listener,
                should_stop=(folder / STOP_FILE).exists if context.is_main else lambda: False,
                test=config["test"],
                stored=config["stored"],
            )
        if outcome is None:
            return {"ended": "elsewhere"}
        return {"ended": "complete", "metrics": outcome.metrics}
    except Stopped:
        return {"ended": "stopped"}
    except Diverged as error:
        return {"ended": "diverged", "reason": str(error)}
    except UserError as error:
        return {"ended": "bad input", "reason": error.line()}
    finally:
        if log is not None:
            log.flush()


def _open_data(job: Mapping[str, Any], home: Path) -> JobData:
    """Opens a job's data. Raises UserError on every rank if one cannot; the others would wait for it."""
    job_data, problem = None, ""
    try:
        resolve_references(worker=True)
        job_data = JobData.of(load_job(job), home, verify=False)
    except UserError as error:
        problem = error.line()
    problems = [problem]
    if dist.is_initialized():
        problems *= dist.get_world_size()
        dist.all_gather_object(problems, problem)
    if job_data is None or any(problems):
        raise UserError(next(filter(None, problems)))
    return job_data


@contextmanager
def _lock_writer(folder: Path, context: Context) -> Iterator[None]:
    """Holds the folder's lock on rank 0, for which all ranks wait: workers of a lost node may still write.

    Raises RuntimeError if the lock is not free within PATIENCE.
    """
    lock: AbstractContextManager[bool] = nullcontext(True)
    if context.is_main:
        lock = lock_file(folder / WRITER, PATIENCE)
    with lock as locked:
        if not context.any(not locked):
            yield
            return
    raise RuntimeError(f"other workers are still training in {folder}")


def _driver_listener(events: Queue) -> Listener:
    last = 0.0

    def send(event: Event) -> None:
        nonlocal last
        now = time.monotonic()
        if event.kind == "step" and not event.metrics and now - last < PROGRESS_EVERY:
            return
        last = now
        events.put(event)

    return send
