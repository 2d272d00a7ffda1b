"""Runs one training of a sweep or a table in an actor of Ray Tune, by the function that `mlcl run` calls.

The training reports to the driver, which alone writes the ledger. It logs to files and needs no tracking
server.
"""

from __future__ import annotations

import gc
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, load_job
from mlcl.errors import UserError
from mlcl.files import DISK_IS_FULL
from mlcl.service.ray.failures import with_node
from mlcl.service.ray.folder import enter_workdir
from mlcl.service.ray.references import resolve_references
from mlcl.significance.roles import figure_name
from mlcl.store import RunFolder
from mlcl.tracking import RunLog, State, mlflow_listener
from mlcl.training.checkpoint import UnreadableCheckpointError
from mlcl.training.context import Context
from mlcl.training.events import Diverged, Event, Listener, Stopped
from mlcl.training.experiment import run_experiment
from mlcl.training.grad_cache import give_back
from mlcl.training.job_data import JobData
from mlcl.training.run_files import Stored, result_files

SCORE, EPOCH, ENDED, VALUES, REASON, NOTE = "score", "epoch", "ended", "values", "reason", "note"
RESUMED = "resumed"
"""Keys of a training's reports to Tune. ENDED is the final state in the last report, and empty before.

VALUES are the final values as JSON. A training that begins from a checkpoint reports its steps as RESUMED.
"""
PATIENCE = 60.0
"""Seconds to wait for the lock of a folder while a process of a killed command still writes there."""
LOOK_EVERY = 0.1
"""Seconds between checks for the stop file, which may be on a network file system."""

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class TrialTask:
    """The description of a training that is sent to an actor of Ray Tune: plain data.

    `metric` is reported at every validation, and `scores` name the metrics that are reported at the end. The
    existence of `stop_file` asks the training to stop. `cpus` and `gpus` are those of each worker, `cwd` is
    the command's working directory, and `stored` and `logged` are those of `Files`.
    """

    key: str
    job: dict[str, Any]
    folder: str
    home: str
    log: str
    metric: str
    scores: tuple[str, ...]
    test: bool
    stop_file: str
    cpus: float
    gpus: float
    cwd: str
    stored: Stored = "float32"
    logged: bool = True

    def config(self) -> dict[str, str]:
        """Returns the config of Tune's trial: all fields in one JSON string, which Tune leaves as it is."""
        return {"payload": json.dumps(asdict(self))}

    @classmethod
    def of(cls, config: dict[str, str]) -> TrialTask:
        """Builds the task from the config of Tune's trial."""
        tree = json.loads(config["payload"])
        return cls(**{**tree, "scores": tuple(tree["scores"])})


def run_trial(config: dict[str, str]) -> None:
    """Trains and evaluates a trial, and reports its state to Tune.

    Raises UnreadableCheckpointError, and RuntimeError if another process trains in its folder; after either,
    Tune starts the trial again.
    """
    from ray import tune

    task = TrialTask.of(config)
    enter_workdir(task.cwd)
    with RunFolder(Path(task.folder)).try_lock(PATIENCE) as locked:
        if not locked:
            raise RuntimeError(f"another process is still training in {task.folder}")
        try:
            train(task, tune.report)
        finally:
            give_back()
        if not gc.get_freeze_count():
            gc.freeze()  # the objects of libraries, over which each further collection would take 0.2 s


def train(task: TrialTask, report: Report) -> None:
    """Trains, from the last checkpoint if there is one, and reports the final state, values and reason.

    A stop is reported as STOPPED, a full disk too, with a reason, and any other error as FAILED, except
    UnreadableCheckpointError, which is raised.
    """
    folder, home, stop = Path(task.folder), Path(task.home), _StopFile(Path(task.stop_file))
    try:
        with _open_log(task) as log:
            if stop():
                raise Stopped
            resolve_references(worker=True)
            job, listener = load_job(task.job), _reporter(task.metric, report)
            if job.train.workers > 1:
                metrics = _train_group(task, job, log, listener, stop)
            else:
                outcome = run_experiment(
                    JobData.of(job, home, verify=False),
                    folder=folder,
                    context=Context.current(job.train.device, gpu_booked=task.gpus > 0),
                    listener=mlflow_listener(log, listener, system=job.tracking.system_metrics),
                    should_stop=stop,
                    test=task.test,
                    stored=task.stored,
                )
                assert outcome is not None
                metrics = outcome.metrics
            log.log_artifacts(result_files(folder, models=task.logged))
            values = [metrics[figure_name(name, metrics)] for name in task.scores]
    except Stopped:
        report({ENDED: State.STOPPED, REASON: ""})
    except UnreadableCheckpointError:
        raise  # the problem may be temporary, and a new start would lose the training
    except Exception as error:
        line = error.line() if isinstance(error, UserError) else f"{type(error).__name__}: {error}"[:5000]
        # A loss is not finite on any node, and a group's notes name the node of each rank that failed.
        on_any_node = isinstance(error, Diverged) or task.job["train"]["workers"] > 1
        disk_full = isinstance(error, OSError) and error.errno in DISK_IS_FULL
        state = State.STOPPED if disk_full else State.FAILED
        report({ENDED: state, REASON: line if on_any_node else with_node(line)})
    else:
        report({ENDED: State.COMPLETE, VALUES: json.dumps(values), REASON: ""})


@contextmanager
def _open_log(task: TrialTask) -> Iterator[RunLog]:
    """Yields the training's log, set to RUNNING; the traceback of an error is written to it."""
    log = RunLog.attach(Path(task.home), task.log)
    log.set_state(State.RUNNING)
    try:
        yield log
    except Stopped:
        raise
    except Exception:
        log.log_text(traceback.format_exc(), "error.txt")
        raise
    finally:
        log.flush()


def _train_group(
    task: TrialTask, job: JobConfig, log: RunLog, listener: Listener, stop: Callable[[], bool]
) -> dict[str, float]:
    """Trains with several workers. If Tune ends this thread by SystemExit, the workers are stopped first."""
    from mlcl.service.ray.ddp_group import Share, run_group

    exits: list[SystemExit] = []

    def listen(event: Event) -> None:
        try:
            if not exits:
                listener(event)
        except SystemExit as end:
            exits.append(end)

    try:
        return run_group(
            job,
            Path(task.folder),
            log,
            Path(task.home),
            listen,
            lambda: bool(exits) or stop(),
            share=Share(task.cpus, task.gpus, wait=True),
            test=task.test,
            stored=task.stored,
        )
    finally:
        if exits:
            raise exits[0]


def _reporter(metric: str, report: Report) -> Listener:
    """Returns a listener that reports `metric` at every validation except that of the last epoch.

    A resumed training first reports the number of its steps, and then all validations up to its checkpoint
    again, since a killed driver may not have received them. Notes and messages about damaged checkpoints are
    reported, too.
    """

    def listen(event: Event) -> None:
        if event.kind == "start" and event.step:
            report({RESUMED: event.step, ENDED: ""})
        if event.kind in ("damage", "note"):
            report({NOTE: event.note, ENDED: ""})
        validations = {event.epoch: event.metrics} if event.kind == "validation" else event.validations
        for epoch, metrics in validations.items():
            # Two-phase jobs have no classifier while they train: k-NN is validated instead of it.
            value = metrics.get(metric, metrics.get(f"knn/{metric}"))
            if value is not None and epoch < event.epochs:
                report({SCORE: float(value), EPOCH: epoch, ENDED: ""})

    return listen


class _StopFile:
    """Returns, when called, whether the stop file exists; looks for it at most every LOOK_EVERY s."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next_look = 0.0
        self._exists = False

    def __call__(self) -> bool:
        now = time.monotonic()
        if not self._exists and now >= self._next_look:
            self._next_look = now + LOOK_EVERY
            self._exists = os.path.exists(self._path)  # noqa: PTH110 (half the time of Path.exists, on every step)
        return self._exists
