"""Parses and checks a command before it is submitted, and describes the submission for `--dry-run`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from mlcl.cli.options import is_typed
from mlcl.config.cluster import ClusterConfig
from mlcl.errors import UserError
from mlcl.service.jobs.command_checks import SUBMITTABLE, check_command

HERE = ("home", "dry_run", "print_config")
"""The options that a submitted command may not have."""


def check_words(
    app: TyperGroup, words: Sequence[str], folder: Path, files: Mapping[str, str] | None = None
) -> list[Path]:
    """Checks a command of `app`, its options (by click) and its files, see `check_command`."""
    name = words[0] if words else "none"
    context: Any = None
    if name in SUBMITTABLE:
        context = app.commands[name].make_context(name, list(words[1:]))
        for option in HERE:
            if is_typed(context, option):
                key = f"--{option.replace('_', '-')}"
                raise UserError("not for a submitted command", key=key, found=name)
    return check_command(name, context.params if context else {}, folder, files)


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
