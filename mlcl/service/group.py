"""Several workers: a Ray TorchTrainer whose workers run the same loop over DDP."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.queue import Empty, Queue

from mlcl.config import JobConfig, dump_job, load_job
from mlcl.errors import UserError
from mlcl.service.session import ray_session
from mlcl.tracking import RunLog, mlflow_listener
from mlcl.training.context import Context
from mlcl.training.events import Diverged, Event, Listener, Stopped, tell_all
from mlcl.training.experiment import run_experiment
from mlcl.training.material import Material

STOP_FILE = "STOP"
"""Asks the workers to stop. A file in the run's folder reaches every node that can hold the checkpoint."""
MAX_RESTARTS = 3
"""Lost workers that are replaced, each time from the last checkpoint."""
PROGRESS_EVERY = 0.2
"""Seconds between progress events that travel to the driver; those with metrics always do."""


def run_group(
    job: JobConfig,
    folder: Path,
    log: RunLog,
    home: Path,
    listener: Listener,
    should_stop: Callable[[], bool],
    *,
    cpus: float = 1,
    gpus: float | None = None,
    test: bool = True,
    log_events: bool = True,
) -> dict[str, float]:
    """Trains with `job.train.workers` processes; gloo on CPUs, NCCL on GPUs. Also from inside of an actor.

    `cpus` and `gpus` are each worker's; by default it has a GPU where there are enough for all.
    `test=False` leaves the test split unread. With `log_events` rank 0 writes to `log`, else only `listener`
    hears. Raises UserError where the cluster has too few CPUs or GPUs: waiting for them would hang for ever.
    """
    (folder / STOP_FILE).unlink(missing_ok=True)
    with ray_session(home, cpus=job.train.workers):
        use_gpu, resources = _check_resources(job, cpus, gpus)
        events = Queue(actor_options={"num_cpus": 0})
        trainer = TorchTrainer(
            _worker,
            train_loop_config={
                "job": dump_job(job),
                "folder": str(folder.resolve()),
                "home": str(home.resolve()),
                "log": log.id if log_events else None,
                "test": test,
                "events": events,
            },
            torch_config=TorchConfig(backend="nccl" if use_gpu else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=job.train.workers, use_gpu=use_gpu, resources_per_worker=resources
            ),
            run_config=RunConfig(
                # A used name would make Ray resume its own state; ours is in the folder's checkpoint.
                name=f"{folder.name}-{time.time_ns()}",
                storage_path=str((folder / "ray").resolve()),
                failure_config=FailureConfig(max_failures=MAX_RESTARTS),
            ),
        )
        try:
            answer = _fit(trainer, events, folder, listener, should_stop)
        finally:
            events.shutdown()
            shutil.rmtree(folder / "ray", ignore_errors=True)  # Ray's own state: ours is the checkpoint
    if answer["ended"] == "stopped":
        raise Stopped
    if answer["ended"] == "diverged":
        raise Diverged(answer["reason"])
    if answer["ended"] == "bad input":
        raise UserError(answer["reason"])
    metrics: dict[str, float] = answer["metrics"]
    return metrics


def _check_resources(job: JobConfig, cpus: float, gpus: float | None) -> tuple[bool, dict[str, float]]:
    """Whether the workers use GPUs, and what each of them is given."""
    workers, total = job.train.workers, ray.cluster_resources()
    auto = total.get("GPU", 0) >= workers * (gpus or 1)
    use_gpu = gpus != 0 and (job.train.device == "cuda" or (job.train.device == "auto" and auto))
    resources = {"CPU": cpus} | ({"GPU": gpus or 1} if use_gpu else {})
    for kind, share in resources.items():
        if total.get(kind, 0) < workers * share:
            raise UserError(
                f"more workers than {kind}s in the cluster",
                key="train.workers",
                found=f"{workers} with {share:g} {kind} each",
                allowed=f"at most {int(total.get(kind, 0) / share)}",
            )
    return use_gpu, resources


def _fit(
    trainer: TorchTrainer, events: Queue, folder: Path, listener: Listener, should_stop: Callable[[], bool]
) -> dict[str, Any]:
    """`trainer.fit` in a thread, so that signals reach this one, which passes events on meanwhile."""
    box: dict[str, Any] = {}

    def fit() -> None:
        try:
            box["result"] = trainer.fit()
        except BaseException as error:
            box["error"] = error

    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    while thread.is_alive():
        if should_stop() and not (folder / STOP_FILE).exists():
            (folder / STOP_FILE).touch()
        _pass_on(events, listener, wait=0.2)
    _pass_on(events, listener, wait=0.0)
    (folder / STOP_FILE).unlink(missing_ok=True)
    if "error" in box:
        raise box["error"]
    answer: dict[str, Any] = box["result"].return_value
    return answer


def _pass_on(events: Queue, listener: Listener, wait: float) -> None:
    try:
        listener(events.get(timeout=wait) if wait else events.get_nowait())
        for event in events.get_nowait_batch(events.qsize()):
            listener(event)
    except Empty:
        return


def _worker(config: dict[str, Any]) -> dict[str, Any]:
    """One rank. Ends that must not be retried are answered, not raised; a crash is raised and retried."""
    job, folder, home = load_job(config["job"]), Path(config["folder"]), Path(config["home"])
    log = None
    try:
        context = Context.current(job.train.device)
        listener: Listener = _nothing
        if context.is_main:
            listener = _to_driver(config["events"])
            if config["log"] is not None:
                log = RunLog.attach(home, config["log"])
                listener = tell_all(mlflow_listener(log), listener)
        outcome = run_experiment(
            Material.of(job, home, verify=False),
            folder=folder,
            context=context,
            listener=listener,
            should_stop=(folder / STOP_FILE).exists if context.is_main else _never,
            test=config["test"],
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


def _to_driver(events: Queue) -> Listener:
    last = 0.0

    def send(event: Event) -> None:
        nonlocal last
        now = time.monotonic()
        if event.kind == "step" and not event.metrics and now - last < PROGRESS_EVERY:
            return
        last = now
        events.put(event)

    return send


def _nothing(_event: Event) -> None:
    return


def _never() -> bool:
    return False
