"""`mlcl.sweep`, and `sweep_plan`, which makes the plan of a sweep for it and for the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from typing_extensions import Unpack

from mlcl.api.common import (
    JobSource,
    Overrides,
    Say,
    baseline_files,
    check_name,
    home_of,
    job_of,
    print_line,
    say_of,
    with_encoder,
)
from mlcl.config import JobConfig, Space, load_job, load_space
from mlcl.config.loader import plain_data
from mlcl.config.packaged import find_file, job_and_space
from mlcl.config.safe_yaml import dump_yaml
from mlcl.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from mlcl.api.answer import Answer
    from mlcl.service.search.sweep_plan import SweepPlan

SHARED = ("train.", "data.", "encoder", "evaluation.", "plugins")
"""Beginnings of keys whose overrides also hold for control and baselines, such as epochs and batch size."""


OF_CALLS = ("encoder", "tokenizer", "collate", "on")
"""The options of `mlcl.sweep` that `sweep_plan` does not take."""
LEAST = {"trials": 1, "seeds": 0, "searches": 1, "confirm": 1, "parallel": 1}
"""The least allowed value of each option of a sweep that is a whole number."""


class SweepOptions(TypedDict, total=False):
    """Further options of `mlcl.sweep`.

    Attributes:
        control: The job of the control; None, the default: the job without heads; False: no control.
        baselines: Job files of baselines, which are searched with the same number of trials as the job. With
            `JOB:SPACE` a baseline has a space of its own.
        fitted: Whether scikit-learn's baselines that suit the data are trained on fresh seeds, too;
            default: True.
        warm_start: The name or id of another sweep. Each search of the job reuses the trials of that sweep's
            search with the same number that lie in the space.
        try_first: Settings that each search tries after the job as written, as values by key of the space.
        fresh: Whether to start a new sweep even if one of this name exists; default: False.
        cpus: The number of CPUs of each training; default: 1.
        gpus: The number of GPUs of each training, which may be a fraction; default: 1 if there are GPUs.
        parallel: The number of trainings that run at once; default: as many as fit.
        budget: The time after which the sweep stops: `2h`, `30cpu-h` or `8gpu-h`.
        encoder: A `torch.nn.Module`, or a class of them, in place of the job's encoder; see `mlcl.compare`.
        tokenizer: The tokenizer of a module that reads texts; see `mlcl.compare`.
        collate: The function that makes the batches of a module; see `mlcl.compare`.
        on: A cluster file: the sweep is a job there, as with `mlcl submit`. An interrupt leaves the job
            running, and the same call follows it, or resumes it. CPUs, GPUs and `parallel` are by default
            those of the file. Default: this machine.

    Example:
        >>> options: SweepOptions = {"parallel": 2, "budget": "2h", "try_first": [{"train.lr": 0.01}]}
        >>> mlcl.sweep("jobs/icd10cm_features.yaml", space, trials=6, seeds=6, **options)
    """

    control: JobSource | Literal[False] | None
    baselines: Sequence[str | Path] | None
    fitted: bool
    warm_start: str | None
    try_first: Sequence[Mapping[str, Any]]
    fresh: bool
    cpus: float
    gpus: float | None
    parallel: int | None
    budget: str | None
    encoder: Any
    tokenizer: Any
    collate: Any
    on: str | Path | None


def sweep(
    job: JobSource,
    space: str | Path | Mapping[str, Any],
    overrides: Overrides = None,
    *,
    trials: int = 16,
    seeds: int = 0,
    searches: int = 3,
    confirm: int = 2,
    name: str | None = None,
    home: str | Path | None = None,
    progress: Say = print_line,
    **options: Unpack[SweepOptions],
) -> Answer:
    """Searches a space, trains the best settings on fresh seeds, and compares them, as `mlcl sweep` does.

    A call with the name of an existing sweep continues it, and larger numbers extend it. An interrupt of the
    kernel (Ctrl-C) ends it with the state STOPPED.

    Args:
        job: A job file, a mapping with a job's keys, or a loaded job.
        space: A space file, or a mapping with the keys `space` and `search`.
        overrides: Dotted keys of the job with their values.
        trials: Search trials of each arm, rounded up so that its searches have equally many.
        seeds: Fresh seeds of each arm, on which its best settings are trained again; 0 for none.
        searches: Searches that divide the trials and fresh seeds of an arm.
        confirm: The number of best trials of each search that are compared on fresh seeds.
        name: The name of the sweep; default: the names of its files, else its experiment.
        home: The folder of results. Default: MLCL_HOME, else `outputs`.
        progress: A function called with each line; None prints nothing. Default: a bar in a notebook.
        options: See `SweepOptions`.

    Raises:
        UserError: The job, the space or the data cannot be used. It is raised before anything is started.

    Example:
        >>> space = {"space": {"train.lr": {"log_float": [0.001, 0.1]}}}
        >>> answer = mlcl.sweep("jobs/icd10cm_features.yaml", space, trials=6, seeds=6)
        >>> print(answer.verdict)
        Cannot tell whether the heads help: ...
    """
    from mlcl.api.answer import Answer
    from mlcl.api.progress import listener_of
    from mlcl.service.search.sweep import run_sweep

    folder = home_of(home)
    numbers = {"trials": trials, "seeds": seeds, "searches": searches, "confirm": confirm}
    _check_options(numbers, options)
    options["try_first"] = _read_settings(options.get("try_first"))
    files = [Path(source).stem for source in (job, space) if isinstance(source, (str, Path))]
    sweep_name = name if name is not None else "-".join(files) or None
    module, say = (options.get("encoder"), options.get("tokenizer")), say_of(progress)
    if (cluster_file := options.get("on")) is not None:
        return _submit_sweep(cluster_file, job, space, overrides, sweep_name, folder, options, numbers, say)
    overrides = with_encoder(*module, job, overrides, folder, say, collate=options.get("collate"))
    args: dict[str, Any] = {**numbers, **{key: item for key, item in options.items() if key not in OF_CALLS}}
    config, shared = job_of(job, overrides), shared_overrides(overrides)
    sweep_name = config.experiment if sweep_name is None else sweep_name
    plan = sweep_plan(config, space, name=sweep_name, home=folder, shared=shared, **args)
    return Answer(run_sweep(plan, home=folder, watch=listener_of(progress)), folder)


def _check_options(numbers: Mapping[str, object], options: Mapping[str, object]) -> None:
    fields = SweepOptions.__annotations__
    for key in options:
        if key not in fields:
            names = (*numbers, *fields)
            raise UserError(f"no such option{did_you_mean(key, names)}", key=key, allowed=sorted(names))
    values = {**numbers, "parallel": options.get("parallel")}
    for key, minimum in LEAST.items():
        value = values[key]
        if value is None and key == "parallel":
            continue
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < minimum:
            raise UserError(
                "not a whole number in the allowed range", key=key, found=value, allowed=f"{minimum} or more"
            )
    for key in ("cpus", "gpus"):
        value = options.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise UserError("not a number", key=key, found=repr(value), allowed="such as 1 or 0.5")


def _read_settings(value: Any) -> list[Mapping[str, Any]]:
    """Returns the settings of `try_first`, none for None. Raises UserError unless they are mappings."""
    if value is None:
        return []
    is_list = hasattr(value, "__iter__") and not isinstance(value, Mapping)
    settings = plain_data(list(value)) if is_list else None
    if not isinstance(settings, list) or not all(isinstance(setting, Mapping) for setting in settings):
        allowed = "a list of mappings, such as [{'train.lr': 0.01}]"
        raise UserError("no settings", key="try_first", found=repr(value)[:60], allowed=allowed)
    return settings


def _submit_sweep(
    cluster_file: str | Path,
    job: JobSource,
    space: str | Path | Mapping[str, Any],
    overrides: Overrides,
    name: str | None,
    home: Path,
    options: SweepOptions,
    numbers: Mapping[str, int],
    say: Callable[[str], None],
) -> Answer:
    from mlcl.api.cluster_command import Caller, sweep_command
    from mlcl.api.cluster_job import cluster_of, submit_sweep

    cluster = cluster_of(cluster_file)
    module, collate = (options.get("encoder"), options.get("tokenizer")), options.get("collate")
    caller = Caller.of(module, job, overrides, home, say, collate=collate)
    shared, all_options = shared_overrides(caller.overrides), {**options}
    name = job_of(job, caller.overrides).experiment if name is None else name
    command = sweep_command(
        caller, job, space, name=name, shared=shared, numbers=numbers, options=all_options
    )
    return submit_sweep(cluster, command, home, say)


def shared_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the overrides that hold for control and baselines, too, see `SHARED`."""
    return {key: value for key, value in overrides.items() if f"{key}.".startswith(SHARED)}


def sweep_plan(
    job: JobConfig,
    space: str | Path | Mapping[str, Any],
    *,
    name: str,
    home: Path,
    shared: Mapping[str, Any],
    seeds: int,
    control: JobSource | Literal[False] | None = None,
    baselines: Sequence[str | Path] | None = None,
    fitted: bool = True,
    cpus: float = 1,
    gpus: float | None = None,
    parallel: int | None = None,
    budget: str | None = None,
    **options: Any,
) -> SweepPlan:
    """Returns the checked plan of a sweep, with the options in `SweepOptions` and fields of `SweepPlan`.

    The overrides `shared` hold for control and baselines, too. Raises UserError if one of the files or
    options cannot be used.
    """
    from mlcl.service.engine.packing import Resources
    from mlcl.service.search.arms import control_job, own_arm
    from mlcl.service.search.sweep_plan import SweepPlan
    from mlcl.training.baselines.jobs import baseline_job, fitting_baselines
    from mlcl.training.job_data import open_dataset

    resources = Resources.of(cpus, gpus, parallel, None if budget is None else str(budget))
    check_name(name, "--name")
    if isinstance(space, Mapping):
        tree: dict[str, Any] = plain_data(space)
        checked_space, text = load_space("space", job, tree), dump_yaml(tree)
    else:
        checked_space, text = load_space(space, job), find_file("space", space).read_text(encoding="utf-8")
    reference = None if control is False else control_job(job) if control is None else job_of(control, shared)
    baseline_jobs, spaces = _load_baselines(baselines, shared, checked_space, own_arm(job))
    if fitted and seeds:
        info = open_dataset(job, home, verify=False).info
        for baseline in fitting_baselines(job, info, in_sweeps=True)[0]:
            baseline_jobs.setdefault(baseline, baseline_job(job, baseline))
    return SweepPlan(
        job=job,
        space=checked_space,
        space_text=text,
        name=name,
        seeds=seeds,
        control=reference,
        baselines=list(baseline_jobs.items()),
        spaces=spaces,
        resources=resources,
        **options,
    )


def _load_baselines(
    baselines: Sequence[str | Path] | None, overrides: Mapping[str, Any], space: Space, arm_name: str
) -> tuple[dict[str, JobConfig], dict[str, tuple[Space, str]]]:
    """Returns the jobs of baselines, and the spaces of those that have one, by the names of their files.

    Such a space gets the section `search` of `space`. `arm_name` is the name of the swept job's arm.
    """
    from mlcl.service.search.arms import CONTROL

    files = [job_and_space(baseline) for baseline in baseline_files(baselines)]
    names = [path.stem for path, _ in files]
    if CONTROL in names:
        raise UserError("is the control's name", key="--baseline", found=CONTROL, allowed="--control FILE")
    if arm_name in names:
        raise UserError("is the name of the swept job's arm", key="--baseline", found=arm_name)
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise UserError("baselines are told apart by their files' names", key="--baseline", found=duplicates)
    jobs, spaces = dict[str, JobConfig](), dict[str, tuple[Space, str]]()
    for path, file in files:
        jobs[path.stem] = load_job(path, overrides)
        if file is not None:
            arm_space = load_space(file, jobs[path.stem])
            text = find_file("space", file).read_text(encoding="utf-8")
            spaces[path.stem] = replace(space, parameters=arm_space.parameters, prior=arm_space.prior), text
    return jobs, spaces
