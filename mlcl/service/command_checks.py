"""Checks a command before it is submitted: the job, space, table and plugin files that it names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcl.backports import chdir
from mlcl.config import JobConfig, load_job, load_space, parse_override, parse_setting, read_job
from mlcl.config.cluster import TrialShare
from mlcl.config.packaged import find_file, is_packaged, job_and_space
from mlcl.config.safe_yaml import load_yaml
from mlcl.config.table.cells import cells_of, data_places
from mlcl.config.table.schema import find_table, load_table
from mlcl.errors import UserError
from mlcl.models.model_folder import is_local
from mlcl.service.engine.packing import Resources
from mlcl.service.jobs.package import upload_files
from mlcl.service.search.starts import asked_start

SUBMITTABLE = ("run", "baseline", "sweep", "reproduce")
"""The commands that can be submitted."""


def check_command(
    name: str, params: Mapping[str, Any], folder: Path, files: Mapping[str, str] | None = None
) -> list[Path]:
    """Checks the files of a command as `mlcl` would in `folder`, and returns those that must be uploaded.

    `params` has the parameters of the command's function by name, and `files` the texts, by file name, of job
    and space files that are uploaded but are not in the working directory. Raises UserError if the command
    cannot be submitted, or a file is wrong.
    """
    if name not in SUBMITTABLE:
        raise UserError("not a command to submit", found=name, allowed=SUBMITTABLE)
    with chdir(folder):
        command_files, jobs = _read_jobs(name, params, files or {})
        if name != "baseline":
            cpus = 1 if params.get("cpus") is None else params["cpus"]
            options = [params.get(option) for option in ("gpus", "parallel", "budget")]
            Resources.of(cpus, *options).check_shares(jobs)
        plugins = dict.fromkeys(
            plugin.path for job in jobs for plugin in job.plugins if plugin.path is not None
        )
        weights = dict.fromkeys(file for job in jobs for file in _weight_files(job, folder))
        return [*command_files, *(Path(os.path.relpath(path)) for path in plugins), *weights]


def _weight_files(job: JobConfig, folder: Path) -> Iterator[Path]:
    """Yields the files of a job's pretrained weights that are uploaded from `folder`.

    Raises UserError if a job names weights by a relative path under which no file is uploaded.
    """
    for key, value in _relative_weights(job):
        path = Path(os.path.normpath(value))
        files = [file for file in upload_files(folder) if path in (file, *file.parents)]
        if not files:
            problem = "these weights are not uploaded: git ignores this relative path, or nothing is there"
            allowed = (
                "a path that every node has; for models also a name on the hub, or s3://, where mlcl models "
            )
            raise UserError(problem, key=key, found=value, allowed=f"{allowed}fetch puts them")
        yield from files


def _relative_weights(job: JobConfig) -> Iterator[tuple[str, str]]:
    """Yields the keys of a job whose values are relative paths of pretrained weights, with the values."""
    encoder = job.encoder.model_dump()
    sections = {"encoder": encoder, **{f"encoder.{name}": part for name, part in encoder.items()}}
    for name, section in sections.items():
        # In a section with `model`, `weights` is the data type of the network's weights.
        key = "model" if isinstance(section, Mapping) and "model" in section else "weights"
        value = section.get(key) if isinstance(section, Mapping) else None
        if isinstance(value, str) and not Path(value).is_absolute() and (key == "weights" or is_local(value)):
            yield f"{name}.{key}", value


def with_share(words: Sequence[str], share: TrialShare) -> list[str]:
    """Returns a command's words, with options for resources of the cluster file that the words do not set."""
    result = list(words)
    if words[0] == "baseline":
        return result
    parallel = None if words[0] == "run" else share.parallel
    for option, value in (("--cpus", share.cpu), ("--gpus", share.gpu), ("--parallel", parallel)):
        if value is not None and not any(w == option or w.startswith(f"{option}=") for w in words):
            result += [option, f"{value:g}"]
    return result


def _read_jobs(
    command: str, arguments: Mapping[str, Any], files: Mapping[str, str]
) -> tuple[list[Path], list[JobConfig]]:
    """Returns the files that a command names, and the jobs in them. Raises UserError if one is wrong."""
    if command == "reproduce":
        if arguments["name"] is None:
            raise UserError("needs a table", key="TABLE")
        figures = arguments.get("figures")
        if figures is not None and not figures.is_absolute():
            problem = "a job's copy of the working directory is removed after it"
            raise UserError(problem, key="--figures", found=figures, allowed="an absolute path, on the head")
        file, only = find_table(arguments["name"]), arguments["only"] or ()
        cells = cells_of(
            load_table(file),
            file,
            scale=arguments["scale"],
            seeds=arguments["seeds"],
            only=only,
            data=data_places(arguments.get("data") or ()),
            overrides=dict(parse_override(text) for text in arguments.get("overrides") or ()),
        )
        return [] if is_packaged(file) else [file], [job for cell in cells for job in cell.jobs]
    if command == "baseline":
        from mlcl.training.baselines.jobs import job_or_dataset

        target = arguments["what"]
        job = job_or_dataset(
            target, [word for word in arguments["words"] or [] if "=" in word], arguments["labels"]
        )
        folder_files = [file for file in upload_files(Path()) if target in file.parents]
        return folder_files or ([target] if target.is_dir() else _job_files([target])), [job]
    trees = {Path(name): load_yaml(text) for name, text in files.items()}
    jobs, sources, spaces = list[JobConfig](), [arguments["job"]], list[Path]()
    jobs.append(load_job(trees.get(arguments["job"], arguments["job"]), arguments["overrides"] or []))
    if command == "sweep":
        baselines = [job_and_space(baseline) for baseline in arguments["baseline"] or []]
        sources += [*(job for job, _ in baselines), *filter(None, [arguments["control"]])]
        jobs += [load_job(trees.get(file, file)) for file in sources[1:]]
        for job, space_name in zip(
            jobs, [arguments["space"], *(base_space for _, base_space in baselines)], strict=False
        ):
            if space_name is not None:
                search_space = load_space(space := find_file("space", space_name), job, trees.get(space))
                spaces += [] if space in trees or is_packaged(space) else [space]
                for setting in arguments.get("try_") or [] if job is jobs[0] else []:
                    asked_start(search_space, job, parse_setting(setting))
    return [*_job_files([trees.get(file, file) for file in sources]), *spaces], jobs


def _job_files(jobs: Sequence[Path | Mapping[str, Any]]) -> list[Path]:
    """Returns the files of jobs and of their bases, without packaged files, which the cluster has already."""
    files = dict.fromkeys(name for job in jobs for name in read_job(job).files)
    return [file for file in files if not is_packaged(file)]
