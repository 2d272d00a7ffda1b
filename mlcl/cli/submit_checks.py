"""Checks a command before it is submitted: its options, and the files that it names."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from mlcl.backports import chdir
from mlcl.cli.options import is_typed
from mlcl.cli.run import baseline_job
from mlcl.config import JobConfig, load_job, load_space, read_job
from mlcl.config.cluster import ClusterConfig, TrialShare
from mlcl.config.packaged import find_file, is_packaged
from mlcl.config.table.cells import cells_of
from mlcl.config.table.schema import find_table, load_table
from mlcl.errors import UserError

SUBMITTABLE = ("run", "baseline", "sweep", "reproduce")
"""The commands that can be submitted."""
HERE = ("home", "dry_run", "print_config")
"""The options that a submitted command may not have."""


def check_words(app: TyperGroup, words: Sequence[str], folder: Path) -> list[Path]:
    """Checks a command of `app` and its job, space, table and plugin files as `mlcl` would in `folder`.

    Returns the paths of these files as given, without packaged files. Raises UserError if a file is wrong,
    and a usage error of click for wrong options.
    """
    name = words[0] if words else "none"
    if name not in SUBMITTABLE:
        raise UserError("not a command to submit", found=name, allowed=SUBMITTABLE)
    context: Any = app.commands[name].make_context(name, list(words[1:]))
    for option in HERE:
        if is_typed(context, option):
            raise UserError("not for a submitted command", key=f"--{option.replace('_', '-')}", found=name)
    with chdir(folder):
        files, jobs = _read(name, context.params)
        plugins = dict.fromkeys(its.path for job in jobs for its in job.plugins if its.path is not None)
        return [*files, *(Path(os.path.relpath(path)) for path in plugins)]


def with_share(words: Sequence[str], share: TrialShare) -> list[str]:
    """Returns the words of a command with the cluster file's `--cpus`, `--gpus` and `--parallel` added.

    Options that the command has already, or does not accept, are not added.
    """
    found = list(words)
    if words[0] == "baseline":
        return found
    parallel = None if words[0] == "run" else share.parallel
    for option, value in (("--cpus", share.cpu), ("--gpus", share.gpu), ("--parallel", parallel)):
        if value is not None and not any(w == option or w.startswith(f"{option}=") for w in words):
            found += [option, f"{value:g}"]
    return found


def submission_plan(config: ClusterConfig, words: list[str], needed: list[Path]) -> Mapping[str, Any]:
    """Describes the submission for `--dry-run`."""
    from mlcl.service.jobs.package import stage, upload_files
    from mlcl.service.jobs.submit import entrypoint, runtime_env

    with tempfile.TemporaryDirectory(prefix="mlcl-") as scratch:
        stage(config.working_dir, Path(scratch), needed)
    root = config.working_dir.root
    files = upload_files(root, config.working_dir.exclude)
    return {
        "cluster": config.ray.address,
        "command": entrypoint(config, words),
        "variables": runtime_env(config, "ID", root)["env_vars"],
        "working_dir": {
            "path": str(root),
            "files": len(files),
            "mib": round(sum((root / name).stat().st_size for name in files) / 2**20, 2),
        },
    }


def _read(command: str, given: Mapping[str, Any]) -> tuple[list[Path], list[JobConfig]]:
    """Returns the files that a command names, and the jobs in them. Raises UserError if one is wrong."""
    if command == "reproduce":
        if given["name"] is None:
            raise UserError("needs a table", key="TABLE")
        file, only = find_table(given["name"]), given["only"] or ()
        cells = cells_of(load_table(file), file, scale=given["scale"], seeds=given["seeds"], only=only)
        return [] if is_packaged(file) else [file], [job for cell in cells for job in cell.jobs]
    if command == "baseline":
        what = given["what"]
        job = baseline_job(what, [word for word in given["words"] or [] if "=" in word], given["labels"])
        return [what] if what.is_dir() else _files_of([what]), [job]
    jobs, sources, spaces = [load_job(given["job"], given["overrides"] or [])], [given["job"]], []
    if command == "sweep":
        load_space(given["space"], jobs[0])
        spaces = [file for file in [find_file("space", given["space"])] if not is_packaged(file)]
        sources += [*(given["baseline"] or []), *filter(None, [given["control"]])]
        jobs += [load_job(file) for file in sources[1:]]
    return [*_files_of(sources), *spaces], jobs


def _files_of(jobs: Sequence[Path]) -> list[Path]:
    """Returns the job files and their bases, without packaged files, which the cluster has already."""
    files = dict.fromkeys(name for file in jobs for name in read_job(file).files)
    return [file for file in files if not is_packaged(file)]
