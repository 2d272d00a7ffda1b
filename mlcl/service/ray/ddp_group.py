"""The driver's side of training with several workers, by a Ray TorchTrainer whose workers use DDP."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources
from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
from ray.train.torch import TorchTrainer
from ray.util.queue import Empty, Queue

from mlcl.config import JobConfig, dump_job
from mlcl.errors import UserError
from mlcl.service.process.signals import STOP_FILE
from mlcl.service.ray.address import on_cluster
from mlcl.service.ray.ddp_worker import FailureNotes, GroupConfig, work
from mlcl.service.ray.session import ray_session
from mlcl.tracking import RunLog
from mlcl.training.events import Diverged, Event, Listener, Stopped
from mlcl.training.run_files import Stored

MAX_RESTARTS = 3
"""The number of restarts after dead processes, between two new checkpoints, before a training fails."""

ROOM_SECONDS = 1800.0
"""Seconds to wait until an autoscaler has brought the nodes that a group needs."""
SAY_EVERY = 60.0
"""Seconds between two announcements that a group waits for nodes."""
LOOK_EVERY = 1.0
ROUNDING = 1e-6
"""The amount by which a quotient of resources may be too small: .7 / .1 is just below 7."""


@dataclass(frozen=True)
class Share:
    """The resources of each worker; if `gpus` is None, a worker has a GPU if there are enough for all.

    With `wait`, the group waits for resources that are missing, such as those of a lost node. Without it, too
    few are refused: at once on this machine, and after ROOM_SECONDS on a cluster, whose autoscaler may add
    nodes.
    """

    cpus: float = 1
    gpus: float | None = None
    wait: bool = False


def run_group(
    job: JobConfig,
    folder: Path,
    log: RunLog | None,
    home: Path,
    listener: Listener,
    should_stop: Callable[[], bool],
    *,
    share: Share = Share(),
    test: bool = True,
    stored: Stored = "float32",
    announce: Callable[[str], None] = lambda _: None,
) -> dict[str, float]:
    """Trains with `job.train.workers` processes, also from inside of an actor; returns the final metrics.

    Workers exchange tensors on GPUs with NCCL, and tensors in the host's memory with gloo. Rank 0 writes to
    `log`, and `listener` gets its events. Raises Stopped after a request to stop, Diverged for a loss that is
    not finite, UserError for bad input or a cluster that is too small, TrainingFailedError if restarts fail.
    """
    (folder / STOP_FILE).unlink(missing_ok=True)
    with ray_session(home, job.train.workers, announce):
        use_gpu, resources = _worker_resources(job, share.cpus, share.gpus)
        if not share.wait:
            _await_resources(job, resources, should_stop, announce)
        events = Queue(actor_options={"num_cpus": 0, "label_selector": _node_selector()})
        config = {
            "job": dump_job(job),
            "folder": str(folder.resolve()),
            "home": str(home.resolve()),
            "cwd": str(Path.cwd()),
            "log": None if log is None else log.id,
            "test": test,
            "stored": stored,
            "gpu": use_gpu,
            "events": events,
        }
        scaling = ScalingConfig(
            num_workers=job.train.workers, use_gpu=use_gpu, resources_per_worker=resources
        )
        try:
            answer = _fit_with_restarts(
                lambda: _build_trainer(config, scaling, folder), events, folder, listener, should_stop
            )
        finally:
            events.shutdown()
            shutil.rmtree(folder / "ray", ignore_errors=True)  # Ray's own state, which mlcl does not read
    if answer["ended"] == "stopped":
        raise Stopped
    if answer["ended"] == "diverged":
        raise Diverged(answer["reason"])
    if answer["ended"] == "bad input":
        raise UserError(answer["reason"])
    metrics: dict[str, float] = answer["metrics"]
    return metrics


def _build_trainer(config: dict[str, Any], scaling: ScalingConfig, folder: Path) -> TorchTrainer:
    return TorchTrainer(
        work,
        train_loop_config=config,
        torch_config=GroupConfig(backend="cpu:gloo,cuda:nccl" if scaling.use_gpu else "gloo"),
        scaling_config=scaling,
        run_config=RunConfig(
            # A used name would make Ray resume its own state; mlcl resumes from the folder's checkpoint.
            name=f"{folder.name}-{time.time_ns()}",
            storage_path=str((folder / "ray").resolve()),
            failure_config=FailureConfig(max_failures=MAX_RESTARTS),
            callbacks=[FailureNotes(config["events"])],
        ),
    )


def _worker_resources(job: JobConfig, cpus: float, gpus: float | None) -> tuple[bool, dict[str, float]]:
    """Returns whether the workers use GPUs, and the resources of each worker as Ray names them."""
    has_gpus = gpus is not None or ray.cluster_resources().get("GPU", 0) >= job.train.workers
    use_gpu = gpus != 0 and (job.train.device == "cuda" or (job.train.device == "auto" and has_gpus))
    return use_gpu, {"CPU": cpus} | ({"GPU": gpus or 1} if use_gpu else {})


def _await_resources(
    job: JobConfig,
    resources: dict[str, float],
    should_stop: Callable[[], bool],
    announce: Callable[[str], None],
) -> None:
    """Waits until the cluster, whose autoscaler is asked for nodes, has room for all workers.

    Raises UserError if there is no room: at once on this machine, after ROOM_SECONDS on a cluster. Raises
    Stopped after a request to stop.
    """
    start = last_notice = time.monotonic()
    try:
        while shortage := _room_error(job, resources):
            if not on_cluster() or time.monotonic() - start >= ROOM_SECONDS:
                raise shortage
            if should_stop():
                raise Stopped
            if last_notice == start or time.monotonic() - last_notice >= SAY_EVERY:
                request_resources(bundles=[resources] * job.train.workers)
                announce(f"waiting for nodes: {shortage.problem}; {shortage.found}; now {shortage.allowed}")
                last_notice = time.monotonic()
            time.sleep(LOOK_EVERY)
    finally:
        if last_notice != start:
            request_resources(bundles=[])  # else Ray would keep the requested nodes


def _room_error(job: JobConfig, resources: dict[str, float]) -> UserError | None:
    """Returns the error for a cluster whose nodes have no room for all workers; None if they have room."""
    workers, total = job.train.workers, ray.cluster_resources()
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    capacity = sum(
        min(int(node.get(kind, 0) / share + ROUNDING) for kind, share in resources.items()) for node in nodes
    )
    if capacity >= workers:
        return None
    scarce_kinds = [kind for kind, share in resources.items() if total.get(kind, 0) < workers * share]
    kinds = scarce_kinds[:1] or list(resources)
    return UserError(
        f"more workers than {kinds[0]}s in the cluster"
        if scarce_kinds
        else "more workers than fit on the nodes",
        key="train.workers",
        found=f"{workers} with {' and '.join(f'{resources[kind]:g} {kind}' for kind in kinds)} each",
        allowed=f"at most {capacity}",
    )


def _node_selector() -> dict[str, str]:
    """Returns the label selector that places an actor on this process's node, so that both fail together."""
    return {"ray.io/node-id": ray.get_runtime_context().get_node_id()}


def _fit_with_restarts(
    trainer: Callable[[], TorchTrainer],
    events: Queue,
    folder: Path,
    listener: Listener,
    should_stop: Callable[[], bool],
) -> dict[str, Any]:
    """Runs `_fit_in_thread` with a new trainer; again after a failure that follows a new checkpoint."""
    saved_step = 0

    def listen(event: Event) -> None:
        nonlocal saved_step
        if event.kind == "saving":
            saved_step = max(saved_step, event.step)
        listener(event)

    while True:
        old_step = saved_step
        try:
            return _fit_in_thread(trainer(), events, folder, listen, should_stop)
        except TrainingFailedError:
            if saved_step == old_step:
                raise


def _fit_in_thread(
    trainer: TorchTrainer, events: Queue, folder: Path, listener: Listener, should_stop: Callable[[], bool]
) -> dict[str, Any]:
    """Runs `trainer.fit` in a new thread; meanwhile this thread handles signals, events and the stop file."""
    outcome: dict[str, Any] = {}

    def fit() -> None:
        try:
            outcome["result"] = trainer.fit()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    while thread.is_alive():
        if should_stop() and not (folder / STOP_FILE).exists():
            (folder / STOP_FILE).touch()
        _forward_events(events, listener, wait=0.2)
    _forward_events(events, listener, wait=0.0)
    (folder / STOP_FILE).unlink(missing_ok=True)
    if "error" in outcome:
        raise outcome["error"]
    answer: dict[str, Any] = outcome["result"].return_value
    return answer


def _forward_events(events: Queue, listener: Listener, wait: float) -> None:
    try:
        listener(events.get(timeout=wait) if wait else events.get_nowait())
        for event in events.get_nowait_batch(events.qsize()):
            listener(event)
    except Empty:
        return
