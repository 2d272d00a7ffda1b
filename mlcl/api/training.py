"""`mlcl.run` and `mlcl.baseline`: one experiment, and baselines fitted to a user's data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcl.api.common import (
    JobSource,
    Overrides,
    Say,
    home_of,
    job_of,
    print_line,
    say_of,
    with_encoder,
)
from mlcl.api.comparing import named_space, prepare_user_data

if TYPE_CHECKING:
    import pandas as pd

    from mlcl.service.run_job import RunReport


def run(
    job: JobSource,
    overrides: Overrides = None,
    *,
    home: str | Path | None = None,
    fresh: bool = False,
    cpus: float | None = None,
    gpus: float | None = None,
    progress: Say = print_line,
    encoder: Any = None,
    tokenizer: Any = None,
    collate: Any = None,
    on: str | Path | None = None,
) -> RunReport:
    """Runs one experiment, as `mlcl run` does: trains, evaluates, logs to MLflow.

    A call with the job of an interrupted run continues that run. An interrupt of the kernel (Ctrl-C) writes a
    checkpoint and returns with the state STOPPED.

    Args:
        job: A job file, a mapping with a job's keys, or a loaded job.
        overrides: Dotted keys of the job with their values.
        home: The folder of results. Default: MLCL_HOME, else `outputs`.
        fresh: Whether to start a new run even if an interrupted one exists.
        cpus: The number of CPUs of each worker, if Ray places the training; default: 1.
        gpus: The number of GPUs of each worker, if Ray places the training; default: 1 if there are GPUs.
        progress: A function that is called with each line of progress; None prints nothing.
        encoder: A `torch.nn.Module`, or a class of them, in place of the job's encoder; see `mlcl.compare`.
        tokenizer, collate: The tokenizer or collate function of a module; see `mlcl.compare`.
        on: A cluster file: the run is a job there, as with `mlcl submit`, and an interrupt leaves it running.
            CPUs and GPUs are by default those of the file. Default: this machine.

    Returns:
        The run's id, state, folder, and final metrics by name.

    Raises:
        UserError: An argument, the job or the data cannot be used. It is raised before anything is started.

    Example:
        >>> mlcl.run("jobs/icd10cm_features.yaml", {"train.epochs": 5}).metrics["test/accuracy"]
    """
    say, folder = say_of(progress), home_of(home)
    if on is not None:
        from mlcl.api.cluster_command import Caller, run_command
        from mlcl.api.cluster_job import cluster_of, submit_run

        cluster, module = cluster_of(on), (encoder, tokenizer)
        caller = Caller.of(module, job, overrides, folder, say, collate=collate)
        command = run_command(caller, job, fresh=fresh, options={"cpus": cpus, "gpus": gpus})
        return submit_run(cluster, command, folder, say)
    config = job_of(job, with_encoder(encoder, tokenizer, job, overrides, folder, say, collate=collate))
    from mlcl.api.progress import training_listener
    from mlcl.service.run_job import run_job

    lines, cpus = training_listener(progress), 1 if cpus is None else cpus
    return run_job(config, home=folder, listener=lines, fresh=fresh, announce=say, cpus=cpus, gpus=gpus)


def baseline(
    data: Any,
    *,
    names: Sequence[str] = (),
    home: str | Path | None = None,
    progress: Say = print_line,
    **columns: Any,
) -> pd.DataFrame:
    """Fits baselines to data, as `mlcl baseline` does: C, threshold and k are chosen on validation.

    Args:
        data: A path, a DataFrame, a Dataset of Hugging Face, a mapping of column names to values, or a list
            of texts, images or vectors, as for `mlcl.prepare`.
        names: Names of `mlcl baselines`. Default: all that can be fitted to the data.
        home: The folder of results. Default: MLCL_HOME, else `outputs`.
        progress: A function that is called with each line of progress; None prints nothing.
        columns: The roles of the columns, see `mlcl.prepare`.

    Returns:
        A row for each baseline, the best on validation first: its state, id and metrics. `frame.attrs` has
        the metric that orders the rows (`metric`), why baselines were left out (`left_out`), and the name of
        the best baseline (`best`): if validation has few rows, the best over several draws of them.

    Raises:
        UserError: The data or a name cannot be used. It is raised before anything is fitted.

    Example:
        >>> mlcl.baseline(frame, text="text", labels="topics")["test/micro_f1"]
        tfidf_svm       0.71
        ...
    """
    import pandas as pd

    from mlcl.api.progress import training_listener
    from mlcl.config import default_mode, load_job
    from mlcl.service.run_baselines import BaselinePlan, best_baseline, run_baselines
    from mlcl.training.baselines.jobs import dataset_job

    say, folder = say_of(progress), home_of(home)
    dataset = prepare_user_data(data, columns, folder)
    job = load_job(dataset_job(dataset.folder, named_space(dataset, columns.get("labels"))))
    baseline_names = [names] if isinstance(names, str) else list(names)
    plan = BaselinePlan.of(job, baseline_names, folder)
    reports = run_baselines(plan, home=folder, listener=training_listener(progress), announce=say)
    rows = {
        name: {"state": str(report.state), "id": report.id, **report.metrics}
        for name, report in reports.items()
    }
    frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("baseline")
    metric = job.evaluation.metric
    if metric in frame:
        frame = frame.sort_values(metric, ascending=default_mode(metric) == "min", kind="stable")
    best, _ = best_baseline(plan, reports, home=folder, announce=say)
    frame.attrs |= {"metric": metric, "left_out": dict(plan.left_out), "best": best}
    return frame
