"""One rank of a worker group: the loop of a plain run, and who may write."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray.util.queue import Queue

from mlcl.config import load_job
from mlcl.errors import UserError
from mlcl.service.runs.shared_folder import enter_workdir
from mlcl.tracking import RunLog, mlflow_listener
from mlcl.tracking.atomic_files import locked
from mlcl.training.context import Context
from mlcl.training.events import Diverged, Event, Listener, Stopped, tell_all
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData

STOP_FILE = "STOP"
"""Asks the workers to stop. A file in the run's folder reaches every node that can hold the checkpoint."""
WRITER = ".writer.lock"
"""Held by the rank that writes, in the run's folder."""
PATIENCE = 60.0
"""Seconds that the workers of a lost node may go on writing before their successors give up."""
PROGRESS_EVERY = 0.2
"""Seconds between progress events that travel to the driver; those with metrics always do."""


def work(config: dict[str, Any]) -> dict[str, Any]:
    """Trains as one rank. Ends that must not be retried are answered, not raised; a crash is retried."""
    enter_workdir(config["cwd"])
    job, folder, home = load_job(config["job"]), Path(config["folder"]), Path(config["home"])
    log = None
    try:
        context = Context.current(job.train.device)
        with _only_writer(folder, context):
            listener: Listener = _nothing
            if context.is_main:
                listener = _to_driver(config["events"])
                if config["log"] is not None:
                    log = RunLog.attach(home, config["log"])
                    listener = tell_all(mlflow_listener(log), listener)
            outcome = run_experiment(
                JobData.of(job, home, verify=False),
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


@contextmanager
def _only_writer(folder: Path, context: Context) -> Iterator[None]:
    """Waits until the folder has no other writer: Ray replaces workers on a node that it does not hear.

    They may well live on there, and write. All ranks wait: each reads the checkpoint.
    """
    if not context.is_main:
        busy = context.any(False)
        if not busy:
            yield
            return
    else:
        with locked(folder / WRITER, PATIENCE) as mine:
            if not context.any(not mine):
                yield
                return
    raise RuntimeError(f"other workers are still training in {folder}")


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
