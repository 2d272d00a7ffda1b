"""Puts artifacts into a store on the same disk as hard links, which take no more room than the files do.

Files of runs are replaced and never changed in place, so a link keeps the content that was logged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mlcl.files import new_file, remove_partial


def link_artifact(path: Path, uri: str, name: str) -> bool:
    """Links a file or folder as the artifact `name`; False if the store at `uri` is not on its disk."""
    target = _local_folder(uri)
    if target is None:
        return False
    try:
        for file in _files(path):
            _link(file, target / name / file.relative_to(path))
    except OSError:  # another disk, or one without links: then MLflow copies
        return False
    return True


def _local_folder(uri: str) -> Path | None:
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return None


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (each for each in sorted(path.rglob("*")) if each.is_file())
    else:
        yield path


def _link(file: Path, target: Path) -> None:
    """Replaces `target` by a link to the file, so that readers find either its old content or the new one."""
    if target.exists() and target.samefile(file):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_partial(target.parent, target.name)  # of a killed sender of the log
    with new_file(target) as work:
        os.link(file, work)
