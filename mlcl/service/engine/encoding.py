"""Encodes the frozen inputs of a command's trainings with all CPUs, and reports the progress.

Rows of train and validation are encoded before the first training, and test rows during the trainings, by a
process with the lowest priority. Trainings that other machines may run encode their inputs themselves.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, dump_job, load_job
from mlcl.markup import duration
from mlcl.service.process.limits import TRAINING, free_memory, usable_cpus
from mlcl.service.ray.address import on_cluster
from mlcl.service.ray.folder import enter_workdir
from mlcl.service.ray.references import resolve_references
from mlcl.training.context import pick_device
from mlcl.training.encoding import Missing, encode, missing_rows, network_inputs, row_count, seconds_to_encode
from mlcl.training.events import Stopped
from mlcl.training.job_data import JobData

AHEAD, TEST = ("train", "validation"), ("test",)
SPLITS = (*AHEAD, *TEST)
QUIET = 2.0
"""Seconds before the first progress message: most inputs take less."""
EVERY = 2.0
"""Seconds between two progress messages."""
SHORT = 5.0
"""Test rows that take fewer seconds are encoded before the trainings: a process takes as long to start."""
LOWEST = 19
"""The niceness of the process for test rows, so that it takes only the CPU time that trainings leave."""
CANCEL_SECONDS = 10.0
"""Seconds that the process for test rows has to end after it is cancelled, before it is killed."""

Show = Callable[[int, int, float | None, str], None]
"""A function of the numbers of encoded rows and of all rows, the seconds left, and a text with all three."""


class Pace:
    """Calls `show` with the progress of an encoding, from `QUIET` seconds on and every `EVERY` seconds."""

    def __init__(self, show: Show, clock: Callable[[], float] = time.monotonic) -> None:
        self._show, self._clock = show, clock
        self._first_progress: tuple[float, int] | None = None
        self._start_time = clock()
        self._shown_time = self._start_time + QUIET - EVERY
        self.is_shown = False

    def __call__(self, done: int, total: int) -> None:
        """Shows the progress if it is due; called after each batch with the number of encoded rows."""
        now = self._clock()
        if done == 0 or self._first_progress is None:
            self._first_progress = (now, done) if done else None  # loading a network is left out of the rate
            return
        first_time, rows = self._first_progress
        if done > rows and now - self._shown_time >= EVERY:
            self._shown_time, self.is_shown = now, True
            pace = (done - rows) / (now - first_time)
            seconds_left = (total - done) / pace
            text = f"encoding: {done:,} of {total:,} rows, {pace:,.0f} a second"
            self._show(done, total, seconds_left, f"{text}, about {duration(seconds_left)} left")

    @property
    def elapsed_text(self) -> str:
        """The time since the construction as a text."""
        return duration(self._clock() - self._start_time)


@dataclass(frozen=True)
class Work:
    """Jobs whose trainings compute on the device type `device`, and the home with their cached inputs."""

    jobs: Sequence[JobConfig]
    home: Path
    device: str

    @classmethod
    def of(cls, jobs: Sequence[JobConfig], home: Path, gpus: float | None) -> Work | None:
        """Returns the work for those jobs that have frozen inputs; None if other machines may train them.

        `gpus` is the number of GPUs of a training, None if it is not decided yet.
        """
        frozen_jobs = [job for job in jobs if network_inputs(job)]
        if not frozen_jobs:
            return cls((), home, "cpu")
        if on_cluster() and not _is_only_node():
            return None
        return cls(frozen_jobs, home, "cpu" if gpus == 0 else pick_device(frozen_jobs[0].train.device).type)

    def find_missing(self, splits: Iterable[str]) -> list[Missing]:
        """Returns the rows of `splits` that the cache lacks, once even if several jobs need them."""
        missing_by_path, seen_keys, names = dict[Path, Missing](), set[str](), tuple(splits)
        for job in self.jobs:
            inputs = [[name, section.model_dump(mode="json")] for name, section in network_inputs(job)]
            labels = job.objective.classifier.labels  # `data.subset` may draw rows of each class
            key = json.dumps([dump_job(job)["data"], labels, inputs], sort_keys=True, default=str)
            if inputs and key not in seen_keys:  # opening data takes a while
                missing_by_path |= missing_rows(JobData.of(job, self.home, verify=False), self.device, names)
            seen_keys.add(key)
        return list(missing_by_path.values())


def encoding_threads() -> int:
    """Returns the number of threads: the usable CPUs, but at most one per `TRAINING` bytes of free memory."""
    return max(1, min(usable_cpus(), free_memory() // TRAINING))


def _is_only_node() -> bool:
    """Whether the Ray cluster that this process has joined consists of this machine."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return False
    node_ids = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    return bool(node_ids == [ray.get_runtime_context().get_node_id()])


def forecast(
    jobs: Sequence[JobConfig], home: Path, gpus: float | None, *, test: bool = True
) -> dict[str, Any] | None:
    """Returns the number of `rows` of frozen inputs that the cache lacks, and the `seconds` to encode them.

    Returns None if other machines may run the trainings. Without `test`, test rows are not counted.
    """
    work = Work.of(jobs, home, gpus)
    if work is None:
        return None
    missing = work.find_missing(SPLITS if test else AHEAD)
    return {"rows": row_count(missing), "seconds": seconds_to_encode(missing, encoding_threads())}


def forecast_text(encoding_forecast: Mapping[str, Any] | None) -> str:
    """Formats the result of `forecast` as a text."""
    if encoding_forecast is None:
        return "by the first training that reads a frozen input"
    if not encoding_forecast["rows"]:
        return "nothing to encode"
    return f"{encoding_forecast['rows']:,} rows, about {duration(encoding_forecast['seconds'])}"


def encode_for_run(work: Work, show: Show, stop: Callable[[], bool]) -> None:
    """Encodes all rows that a single training reads. Raises Stopped after a request to stop."""
    _encode_missing(work.find_missing(SPLITS), Pace(show), stop)


@contextmanager
def encode_ahead(
    work: Work, *, test: bool, show: Show, note: Callable[[str], None], stop: Callable[[], bool]
) -> Iterator[None]:
    """Encodes rows of train and validation, then runs the block of the context, which has the trainings.

    With `test`, test rows are encoded during the block; or before it, if they take less than `SHORT` seconds
    or the device is not the CPU. A request to stop ends the encoding. After an error, which is announced by
    `note`, the trainings encode the remaining rows themselves.
    """
    pace, test_rows = Pace(show), list[Missing]()
    try:
        _encode_missing(work.find_missing(AHEAD), pace, stop)
        test_rows = work.find_missing(TEST) if test else []
        if work.device != "cpu" or seconds_to_encode(test_rows, encoding_threads()) < SHORT:
            _encode_missing(test_rows, pace, stop)
            test_rows = []
    except Stopped:
        pass
    except Exception as error:
        note(_fallback_note(error))
        test_rows = []
    if pace.is_shown and not stop():
        note(f"frozen inputs: {pace.elapsed_text}")
    if test_rows and not stop():
        note(f"{row_count(test_rows):,} test rows are encoded beside the trainings")
        with _encode_in_task(work, note):
            yield
    else:
        yield


def _fallback_note(error: Exception) -> str:
    return " ".join(f"frozen inputs are left to the trainings: {type(error).__name__}: {error}".split())


def _encode_missing(missing: Sequence[Missing], pace: Pace, stop: Callable[[], bool]) -> None:
    def tell(done: int, total: int) -> None:
        if stop():
            raise Stopped
        pace(done, total)

    if missing:
        encode(missing, encoding_threads(), tell)


@contextmanager
def _encode_in_task(work: Work, note: Callable[[str], None]) -> Iterator[None]:
    """Encodes test rows in a Ray task while the block runs; the task is cancelled at the end of the block."""
    import ray

    task = ray.remote(num_cpus=0, max_retries=0, max_calls=1)(encode_beside)
    jobs, folders = [dump_job(job) for job in work.jobs], [str(work.home.resolve()), str(Path.cwd())]
    reference = task.remote(jobs, *folders, work.device)
    try:
        yield
    finally:
        try:
            ray.cancel(reference)
            if not ray.wait([reference], timeout=CANCEL_SECONDS)[0]:
                ray.cancel(reference, force=True)
            ray.get(reference)
        except (ray.exceptions.TaskCancelledError, ray.exceptions.WorkerCrashedError):
            pass
        except Exception as error:
            note(_fallback_note(getattr(error, "cause", None) or error))


def encode_beside(jobs: Sequence[Mapping[str, Any]], home: str, cwd: str, device: str) -> None:
    """Encodes the test rows of jobs with the lowest priority, in the process of `_encode_in_task`."""
    enter_workdir(cwd)
    os.nice(LOWEST)
    resolve_references(worker=True)
    missing = Work([load_job(job) for job in jobs], Path(home), device).find_missing(TEST)
    encode(missing, encoding_threads(), lambda _done, _total: None)
