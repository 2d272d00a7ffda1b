"""Downloads the embeddings and jobs of runs from MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcl.config import load_job
from mlcl.errors import UserError
from mlcl.plugins import files_are_run
from mlcl.report.runs import Runs
from mlcl.training.job_data import JobData
from mlcl.training.run_files import EMBEDDINGS, JOB, MODEL


def fetch(runs: Runs, run_id: str, scratch: Path) -> Path:
    """Downloads a run's embeddings and job to a new folder. Raises UserError where it has none."""
    run, folder = runs.get(run_id), scratch / run_id
    if run is None:
        raise UserError("no such run in MLflow", key="RUN", found=run_id)
    folder.mkdir(exist_ok=True)
    runs.artifact(run, EMBEDDINGS, folder)
    # Without the weights beside it. Some stores keep the name of the folder, others do not.
    runs.artifact(run, f"{MODEL}/{JOB}", folder).replace(folder / JOB)
    return folder


def fetch_all(runs: Runs, ids: Mapping[str, Sequence[str]], scratch: Path) -> dict[str, list[Path]]:
    """Downloads the runs of several settings."""
    return {setting: [fetch(runs, run_id, scratch) for run_id in run_ids] for setting, run_ids in ids.items()}


class JobDataCache:
    """The data of downloaded runs. Runs that differ only in the seed of the training share one."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._known: dict[str, JobData] = {}

    def __call__(self, folder: Path) -> JobData:
        """The data of the run in `folder`. Raises UserError where it cannot be had."""
        job = load_job(folder / JOB)
        if job.plugins and not files_are_run():
            raise UserError("its job has plugin files, which are not run here", key="plugins")
        name = job.model_copy(update={"train": job.train.model_copy(update={"seed": 0})}).model_dump_json()
        if name not in self._known:
            self._known[name] = JobData.of(job, self._home)
        return self._known[name]
