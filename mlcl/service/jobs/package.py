"""Chooses and copies the files of the working directory that is uploaded with a job."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from mlcl.config.cluster import WorkingDir
from mlcl.errors import UserError
from mlcl.store import DATABASE, KINDS
from mlcl.tracking.provenance import CARRIED, provenance

NAMED = 5
"""The largest number of files that an error names."""
NEVER = (
    ".git", "__pycache__", ".venv", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache",
    ".gitignore", ".rayignore",  # Ray would apply them to the files that were chosen here
)  # fmt: skip
SECRETS = (
    "*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".env", ".env.*",
    ".netrc", ".pgpass", ".pypirc", ".git-credentials", "credentials", "*.token", "*.password", "mlflow.user",
    "*.sqlite", "*.db", "*.db[-.]*",
)  # fmt: skip
"""Files that are never uploaded: keys, passwords, and databases with users."""


RESULTS = (*KINDS, "logs", "cache", "artifacts", "reports", "service")
"""Folders beside a home's database that are never uploaded: what commands have written."""


def upload_files(root: Path, exclude: Sequence[str] = ()) -> list[Path]:
    """Returns the files to upload, as paths relative to `root`.

    In a git checkout they are the files that git does not ignore, elsewhere all files. Links that lead out of
    the folder, secrets, the `RESULTS` of a home, and files that match a pattern of `exclude` are left out.
    """
    if not root.is_dir():
        raise UserError("no such folder", key="working_dir.path", found=root)
    patterns = (*SECRETS, *exclude)
    git_files = _git_files(root)
    names = git_files if git_files is not None else _all_files(root)
    results = {name.parent / folder for name in names if name.name == DATABASE for folder in RESULTS}
    return [
        name
        for name in sorted(names)
        if results.isdisjoint(name.parents) and _is_uploaded(root, name, patterns)
    ]


def check_size(root: Path, files: Sequence[Path], most_mib: float) -> None:
    """Raises UserError, which names the largest files, if the files have more than `most_mib` MiB."""
    sizes = {name: (root / name).stat().st_size for name in files}
    mib = sum(sizes.values()) / 2**20
    if mib <= most_mib:
        return
    largest_files = sorted(sizes, key=lambda name: -sizes[name])[:NAMED]
    raise UserError(
        "too large to upload; leave files out with working_dir.exclude, or in a git repository .gitignore",
        file=root,
        key="working_dir",
        found=f"{mib:.1f} MiB: "
        + ", ".join(f"{name} ({sizes[name] / 2**20:.1f} MiB)" for name in largest_files),
        allowed=f"{most_mib:g} MiB",
    )


def stage(
    working_dir: WorkingDir,
    folder: Path,
    required_files: Sequence[Path] = (),
    texts: Mapping[str, str] | None = None,
) -> Path:
    """Copies the files to upload, `texts` by file name, and the code's provenance to `folder`; returns it.

    Raises UserError if the files are too large, or a file in `required_files` is not one of them.
    """
    root = working_dir.root
    files = upload_files(root, working_dir.exclude)
    check_size(root, files, working_dir.most_mib)
    for file in required_files:
        _check_uploaded(file, root, files)
    for name in files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target)
    for text_name, text in (texts or {}).items():
        (folder / text_name).write_text(text, encoding="utf-8")
    (folder / CARRIED).write_text(json.dumps(asdict(provenance(root))), encoding="utf-8")
    return folder


def _check_uploaded(file: Path, root: Path, files: Sequence[Path]) -> None:
    if file.is_absolute():
        raise UserError("name files from the working directory", found=file, allowed="a relative path")
    if not (root / file).exists():
        raise UserError("no such file in the working directory", file=root / file)
    if Path(os.path.normpath(file)) not in files:
        raise UserError(
            "this file is not uploaded: git ignores it, working_dir.exclude names it, or it lies elsewhere",
            file=root / file,
        )


def _git_files(root: Path) -> list[Path] | None:
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        process = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if process.returncode:
        return None
    names = [Path(os.fsdecode(name)) for name in process.stdout.split(b"\0") if name]
    return [name for name in dict.fromkeys(names) if (root / name).is_file()]


def _all_files(root: Path) -> list[Path]:
    paths: list[Path] = []
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name not in NEVER]
        paths += [Path(folder, name).relative_to(root) for name in files]
    return [name for name in paths if (root / name).is_file()]


def _is_excluded(name: Path, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches any part of the path or, if the pattern has a slash, its beginning."""
    for pattern in patterns:
        glob = pattern.strip("/")
        if "/" in glob:
            tops = ["/".join(name.parts[:depth]) for depth in range(1, len(name.parts) + 1)]
            if any(fnmatch.fnmatchcase(top, glob) for top in tops):
                return True
        elif any(fnmatch.fnmatchcase(part, glob) for part in name.parts):
            return True
    return any(part in NEVER for part in name.parts)


def _is_uploaded(root: Path, name: Path, patterns: Sequence[str]) -> bool:
    """Whether a file may be uploaded; for a link, the file that it points to must be allowed, too."""
    if re.search(r"[\r\n]", str(name)) or _is_excluded(name, patterns):
        return False
    target, top = (root / name).resolve(), root.resolve()
    return target.is_relative_to(top) and not _is_excluded(target.relative_to(top), patterns)
