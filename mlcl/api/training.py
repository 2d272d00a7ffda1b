"""`mlcl.run`: one experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlcl.api.common import JobSource, Overrides, Say, home_of, job_of, print_line, silent

if TYPE_CHECKING:
    from mlcl.service.run_job import RunReport


def run(
    job: JobSource,
    overrides: Overrides = None,
    *,
    home: str | Path | None = None,
    fresh: bool = False,
    cpus: float = 1,
    gpus: float | None = None,
    progress: Say = print_line,
) -> RunReport:
    """Runs one experiment, as `mlcl run` does: trains, evaluates, logs to MLflow.

    A call with the same job goes on with an interrupted run. An interrupt of the kernel (Ctrl-C) writes a
    checkpoint and returns with the state STOPPED.

    Args:
        job: A job file, a mapping with a job's keys, or a loaded job.
        overrides: Dotted keys of the job with their values.
        home: The folder of results. Default: MLCL_HOME, else `outputs`.
        fresh: Starts anew, also where an interrupted run exists.
        cpus: CPUs of each worker where Ray places the training.
        gpus: GPUs of each worker there; default: one where there are any.
        progress: Gets lines of progress; None for silence.

    Returns:
        The run's id, state, folder, and final metrics by name.

    Raises:
        UserError: For a job or data that cannot be used, before anything is started.

    Example:
        >>> mlcl.run("jobs/icd10cm_features.yaml", {"train.epochs": 5}).metrics["test/accuracy"]
    """
    from mlcl.api.progress import TrainingLines
    from mlcl.service.run_job import run_job

    say = progress or silent
    return run_job(
        job_of(job, overrides),
        home=home_of(home),
        listener=TrainingLines(say),
        fresh=fresh,
        announce=say,
        cpus=cpus,
        gpus=gpus,
    )
