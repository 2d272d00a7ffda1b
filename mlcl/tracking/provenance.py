"""Collects the provenance of a result: code, uncommitted changes, library versions, machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from mlcl.files import sha256_of
from mlcl.tracking.names import VERSION_TAG, Tag

LIBRARIES = ("torch", "ray", "optuna", "mlflow-skinny", "numpy", "faiss-cpu", "transformers")
OF_GIT = (Tag.COMMIT, Tag.DIRTY)
SUBMITTED = "MLCL_JOB"
"""The environment variable with the id of the cluster job that runs this command."""
CARRIED = ".mlcl-source.json"
"""The file in an uploaded working directory, which has no git, with the commit and diff of its origin."""
MAX_DIFF = 2_000_000
"""The length in characters to which a diff is cut; a cut diff ends with the line `[cut]`."""


def submitted_id() -> str | None:
    """Returns the id of the cluster job that runs this command; None outside of a cluster job."""
    return os.environ.get(SUBMITTED) or None


def submitted_tags() -> dict[str, str]:
    """Returns the tag with the id of this command's cluster job; empty outside of a cluster job."""
    id = submitted_id()
    return {} if id is None else {Tag.JOB: id}


@dataclass(frozen=True)
class Provenance:
    """The provenance of a run: its tags, the `diff` of uncommitted changes, and the installed `packages`."""

    tags: dict[str, str]
    diff: str
    packages: str = ""


def code() -> str:
    """Returns this package's version, commit and digest of changes, as `0.1.0 1a2b3c4d5e6f +89abcdef`.

    Changes are the uncommitted diff of the package's folder, and untracked files that git does not ignore.
    """
    folder = Path(__file__).parents[1]
    commit, diff = _run_git(folder, "rev-parse", "HEAD"), _run_git(folder, "diff", "HEAD", "--", ".")
    if commit is None:
        record = _uploaded_provenance((Path.cwd(),))
        commit, diff = record.tags.get(Tag.COMMIT), record.diff
    changes = (diff or "").encode() + b"".join(_untracked_digests(folder))
    parts = [metadata.version("mlcl"), (commit or "").strip()[:12]]
    parts.append(f"+{hashlib.sha256(changes).hexdigest()[:8]}" if changes else "")
    return " ".join(part for part in parts if part)


def _untracked_digests(folder: Path) -> Iterator[bytes]:
    """Yields the name of each untracked file below the folder, and the digest of its content."""
    names = _run_git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--", ".") or ""
    for name in sorted(filter(None, names.split("\0"))):
        yield f"\0{name}\0".encode()
        # A file that was deleted or cannot be read cannot be imported either.
        with suppress(OSError), (folder / name).open("rb") as file:
            yield bytes.fromhex(sha256_of(file))


def provenance(*folders: Path, ignored_folder: Path | None = None) -> Provenance:
    """Collects the provenance of this process, with the commit of the first folder in a git checkout.

    Changes in the folder `ignored_folder` are left out.
    """
    tags: dict[str, str] = {Tag.PYTHON: platform.python_version(), Tag.MACHINE: platform.machine()}
    tags |= {Tag.SOURCE_NAME: "mlcl", Tag.SOURCE_TYPE: "LOCAL"}
    versions = _installed_packages()
    packages = "".join(f"{name}=={versions[name]}\n" for name in sorted(versions, key=str.lower))
    tags[f"{VERSION_TAG}mlcl"] = versions["mlcl"]
    tags[Tag.LIBRARIES] = " ".join(f"{name}=={versions[name]}" for name in LIBRARIES if name in versions)
    tags |= submitted_tags()
    for folder in folders or (Path.cwd(), Path(__file__).parent):
        commit = _run_git(folder, "rev-parse", "HEAD")
        if commit is not None:
            break
    else:
        record = _uploaded_provenance(folders or (Path.cwd(),))
        return Provenance(record.tags | tags, record.diff, packages)
    paths = [] if ignored_folder is None else _exclude_arguments(folder, ignored_folder.resolve())
    diff = _run_git(folder, "diff", "HEAD", *paths) or ""
    untracked_files = _run_git(folder, "ls-files", "--others", "--exclude-standard", *paths) or ""
    tags |= dict(zip(OF_GIT, (commit.strip(), str(bool(diff or untracked_files)).lower()), strict=True))
    if len(diff) > MAX_DIFF:
        diff = diff[:MAX_DIFF] + "\n[cut]\n"
    if untracked_files:
        diff += "\n".join(["", "Untracked files:", *untracked_files.splitlines()]) + "\n"
    return Provenance(tags, diff, packages)


def _exclude_arguments(folder: Path, excluded: Path) -> list[str]:
    """Returns git's arguments that leave out the folder `excluded`; none for one outside of the checkout."""
    top = Path((_run_git(folder, "rev-parse", "--show-toplevel") or "").rstrip("\n")).resolve()
    if top not in excluded.parents:
        return []
    return ["--", ":/", f":(top,exclude,literal){excluded.relative_to(top).as_posix()}"]


@cache  # reading the metadata of some hundred packages takes a tenth of a second
def _installed_packages() -> dict[str, str]:
    return {package.name: package.version for package in metadata.distributions()}


def _uploaded_provenance(folders: tuple[Path, ...]) -> Provenance:
    """Returns the commit and diff that were uploaded with a cluster job; an empty provenance without them."""
    for folder in folders:
        try:
            tree = json.loads((folder / CARRIED).read_text(encoding="utf-8"))
            tags = {str(name): str(tree["tags"][name]) for name in OF_GIT if name in tree["tags"]}
            return Provenance(tags, str(tree["diff"]))
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return Provenance({}, "")


def _run_git(folder: Path, *arguments: str) -> str | None:
    try:
        process = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # a diff holds files of any encoding
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout if process.returncode == 0 else None
