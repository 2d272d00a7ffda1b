"""The plan that `mlcl run --dry-run` prints: data, task and training of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, dump_job
from mlcl.service.engine.encoding import forecast, forecast_text
from mlcl.service.ray.address import placed_by_ray
from mlcl.tracking import hide_password, tracking_uri
from mlcl.training.context import pick_device
from mlcl.training.job_data import JobData, job_plan
from mlcl.training.run_files import EMBEDDINGS, MODEL, RESULT


def plan_run(job: JobConfig, home: Path) -> dict[str, Any]:
    """Returns the plan of a run as plain data, after all checks; prepares the data set if necessary."""
    if not placed_by_ray(job):
        pick_device(job.train.device)
    return job_plan(JobData.of(job, home)) | {
        "frozen_inputs": forecast_text(None if placed_by_ray(job) else forecast([job], home, None)),
        "writes": {
            "folder": str(home / "runs" / "<run id>"),
            "files": ["checkpoint.pt", RESULT, EMBEDDINGS, f"{MODEL}/"],
            "tracking": hide_password(tracking_uri(home)),
        },
        "job": dump_job(job),
    }
