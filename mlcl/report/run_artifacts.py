"""What runs left in MLflow, fetched to be computed with again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcl.config import load_job
from mlcl.errors import UserError
from mlcl.report.runs import Runs
from mlcl.training.files import EMBEDDINGS, JOB, MODEL
from mlcl.training.job_data import JobData


def fetch(runs: Runs, run_id: str, scratch: Path) -> Path:
    """A folder with a run's embeddings and its job. Raises UserError where it left none."""
    run, folder = runs.get(run_id), scratch / run_id
    if run is None:
        raise UserError("no such run in MLflow", key="RUN", found=run_id)
    folder.mkdir(exist_ok=True)
    runs.artifact(run, EMBEDDINGS, folder)
    # Not the weights beside it. MLflow keeps the folder's name for some stores, and not for others.
    runs.artifact(run, f"{MODEL}/{JOB}", folder).replace(folder / JOB)
    return folder


def fetch_all(runs: Runs, ids: Mapping[str, Sequence[str]], scratch: Path) -> dict[str, list[Path]]:
    """The same for the runs of several settings."""
    return {setting: [fetch(runs, run_id, scratch) for run_id in run_ids] for setting, run_ids in ids.items()}


class JobDataCache:
    """What fetched runs were trained on. Runs that differ in their training's seed alone share one."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._known: dict[str, JobData] = {}

    def __call__(self, folder: Path) -> JobData:
        """Of the run in `folder`. Raises UserError where its data cannot be had here."""
        job = load_job(folder / JOB)
        name = job.model_copy(update={"train": job.train.model_copy(update={"seed": 0})}).model_dump_json()
        if name not in self._known:
            self._known[name] = JobData.of(job, self._home)
        return self._known[name]
