"""Checks a command before it is submitted: its options, and the files that it names."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from mlcl.cli import baseline
from mlcl.cli.options import is_typed
from mlcl.config import JobConfig, load_job, load_space, read_job
from mlcl.config.cluster import ClusterConfig, TrialShare
from mlcl.config.table.cells import cells_of
from mlcl.config.table.schema import find_table, load_table
from mlcl.errors import UserError

HERE = ("home", "dry_run", "print_config")
"""Options that work on this machine alone."""


def check_words(app: TyperGroup, words: Sequence[str], folder: Path) -> list[Path]:
    """Checks a command of `app` and its job, space, table and plugin files as `mlcl` would in `folder`.

    Returns the paths of these files as given. Raises UserError where one is wrong, and a usage error for
    wrong options.
    """
    name = words[0] if words else "none"
    if name not in SUBMITTABLE:
        raise UserError("not a command to submit", found=name, allowed=SUBMITTABLE)
    context: Any = app.commands[name].make_context(name, list(words[1:]))
    for option in HERE:
        if is_typed(context, option):
            raise UserError("not for a submitted command", key=f"--{option.replace('_', '-')}", found=name)
    with chdir(folder):
        return _CHECKS[name](context.params)


def with_share(words: Sequence[str], share: TrialShare) -> list[str]:
    """Adds the options of the cluster's share that a command does not have."""
    found = list(words)
    if words[0] in ("run", "baseline"):
        return found
    for option, value in (("--cpus", share.cpu), ("--gpus", share.gpu), ("--parallel", share.parallel)):
        if value is not None and not any(w == option or w.startswith(f"{option}=") for w in words):
            found += [option, f"{value:g}"]
    return found


def submission_plan(config: ClusterConfig, words: list[str], needed: list[Path]) -> Mapping[str, Any]:
    """Describes what would be submitted, for `--dry-run`."""
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


def _run(given: dict[str, Any]) -> list[Path]:
    job = load_job(given["job"], given["overrides"] or [])
    return [*read_job(given["job"]).files, *_plugins([job])]


def _baseline(given: dict[str, Any]) -> list[Path]:
    words = given["words"] or []
    job = baseline.read(given["what"], [word for word in words if "=" in word], given["labels"])
    files = [given["what"]] if given["what"].is_dir() else read_job(given["what"]).files
    return [*files, *_plugins([job])]


def _sweep(given: dict[str, Any]) -> list[Path]:
    job = load_job(given["job"], given["overrides"] or [])
    load_space(given["space"], job)
    baselines = list(given["baseline"] or [])
    jobs = [job, *(load_job(file, []) for file in baselines)]
    files = [name for file in (given["job"], *baselines) for name in read_job(file).files]
    return [*dict.fromkeys(files), given["space"], *_plugins(jobs)]


def _reproduce(given: dict[str, Any]) -> list[Path]:
    if given["name"] is None:
        raise UserError("needs a table", key="TABLE")
    file = find_table(given["name"])
    cells = cells_of(
        load_table(file), file, scale=given["scale"], seeds=given["seeds"], only=given["only"] or ()
    )
    return [file, *_plugins([job for cell in cells for job in cell.jobs])]


def _plugins(jobs: Sequence[JobConfig]) -> list[Path]:
    """The plugin files of jobs, from the working directory."""
    paths = [plugin.path for job in jobs for plugin in job.plugins if plugin.path is not None]
    return [Path(os.path.relpath(path)) for path in dict.fromkeys(paths)]


_CHECKS = {"run": _run, "baseline": _baseline, "sweep": _sweep, "reproduce": _reproduce}
SUBMITTABLE = tuple(_CHECKS)
"""The commands that can be submitted."""
