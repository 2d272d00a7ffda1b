"""What runs left in MLflow, fetched to be computed with again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcl.config import load_job
from mlcl.errors import UserError
from mlcl.report.runs import Runs
from mlcl.training.files import EMBEDDINGS, JOB, MODEL
from mlcl.training.material import Material


def fetch(runs: Runs, run_id: str, scratch: Path) -> Path:
    """A folder with a run's embeddings and its model. Raises UserError where it left none."""
    run, folder = runs.get(run_id), scratch / run_id
    if run is None:
        raise UserError("no such run in MLflow", key="RUN", found=run_id)
    folder.mkdir(exist_ok=True)
    for artifact in (EMBEDDINGS, MODEL):
        runs.artifact(run, artifact, folder)
    return folder


def fetch_all(runs: Runs, ids: Mapping[str, Sequence[str]], scratch: Path) -> dict[str, list[Path]]:
    """The same for the runs of several settings."""
    return {setting: [fetch(runs, run_id, scratch) for run_id in run_ids] for setting, run_ids in ids.items()}


def material_of(folder: Path, home: Path) -> Material:
    """What a fetched run was trained on. Raises UserError where its data cannot be had here."""
    return Material.of(load_job(folder / MODEL / JOB), home)
