"""The origin of a cell's values: setting, data and code, which decide what is comparable in a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, dump_job
from mlcl.config.table.cells import Cell
from mlcl.data import DatasetInfo
from mlcl.errors import UserError
from mlcl.results.cell_result import CellResult, Origin
from mlcl.results.provenance import Tags
from mlcl.tracking.names import VERSION_TAG, Tag
from mlcl.tracking.provenance import provenance

PLACE = ("source", "path", "options", "split_seed")
"""The keys of a data section that define its files and their split, and which are left out of hashes.

The fingerprint of the data stands for them.
"""

NO_COMMIT = "none"
"""The commit in an origin for a training whose code was not committed."""


def cell_origin(
    cell: Cell, seed_keys: Sequence[str], data: DatasetInfo, tags_of_trainings: Iterable[Tags]
) -> Origin:
    """Returns the origin of a cell; `tags_of_trainings` has the MLflow tags of each of its trainings."""
    tags = list(tags_of_trainings)
    commits = set(map(commit_of, tags))
    versions = {training_tags.get(f"{VERSION_TAG}mlcl", "") for training_tags in tags}
    mlcl = ", ".join(sorted(filter(None, versions)))
    commit = ", ".join(sorted(commit or NO_COMMIT for commit in commits))
    return Origin(setting_hash(cell, seed_keys), data.name, data.fingerprint, mlcl, commit)


def commit_of(tags: Tags) -> str:
    """Returns the first twelve digits of the commit in the tags, or none, and `+` for uncommitted changes."""
    return tags.get(Tag.COMMIT, "")[:12] + ("+" if tags.get(Tag.DIRTY) == "true" else "")


def check_committed(file: Path, written_folder: Path | None) -> None:
    """Raises UserError, for the table in `file`, unless the present code is a commit without changes.

    Changes in the folder `written_folder`, which has figures of earlier commands, do not count.
    """
    tags = provenance(ignored_folder=written_folder).tags
    if tags.get(Tag.DIRTY) != "false":
        state = f"uncommitted changes at {tags[Tag.COMMIT][:12]}" if Tag.COMMIT in tags else "no git checkout"
        raise _uncommitted_error(file, state)


def check_origins(cells: Iterable[CellResult], file: Path) -> None:
    """Raises UserError if a training of the cells ran code with uncommitted changes or without a commit."""
    for cell in cells:
        commit = "" if cell.origin is None else cell.origin.commit
        if any(part in ("", NO_COMMIT) or part.endswith("+") for part in commit.split(", ")):
            raise _uncommitted_error(file, f"{cell.id} at {commit or 'no commit'}")


def _uncommitted_error(file: Path, state: str) -> UserError:
    problem = "this table's figures come from committed code alone"
    allowed = "a checkout without changes or untracked files"
    return UserError(problem, file=file, key="clean", found=state, allowed=allowed)


def setting_hash(cell: Cell, seed_keys: Sequence[str]) -> str:
    """Returns a hash of sixteen hex digits of a cell's job and search, without seeds and paths of data."""
    job = cell.jobs[0]
    tree = _drop_places(job)
    for key in ("experiment", *seed_keys):
        _drop_key(tree, key)
    tuning = cell.tuning
    search = None if tuning is None else [tuning.text, tuning.trials]
    if tuning is not None and tuning.control is not None:
        search = [tuning.text, tuning.trials, tuning.control, tuning.hold, tuning.start]
    if search is not None and tuning is not None and (tuning.searches, tuning.race_seeds) != (1, 0):
        search += [tuning.searches, tuning.race_seeds, tuning.confirm if tuning.race_seeds else 0]
    return digest([tree, [plugin.sha256 for plugin in job.plugins], dict(cell.neighbours), search])


def rows_seen(job: JobConfig, seed_keys: Sequence[str], fingerprint: str) -> str:
    """Returns a hash, equal for jobs that with equal seeds see the same rows and predict the same labels."""
    tree = _drop_places(job)
    for key in seed_keys:
        _drop_key(tree, key)
    return digest([tree["data"], job.objective.classifier.labels, fingerprint])


def without_empty(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tree without keys whose value is None or empty, which do not count in hashes."""
    values = {key: without_empty(value) if isinstance(value, dict) else value for key, value in tree.items()}
    return {key: value for key, value in values.items() if value not in (None, {}, [], ())}


def _drop_places(job: JobConfig) -> dict[str, Any]:
    """Returns the job as a tree without the keys that say where its data and its tracking store are."""
    tree = without_empty(dump_job(job))
    tree.pop("tracking", None)
    for section in ("data", "evaluation.transfer_to"):
        for key in PLACE:
            _drop_key(tree, f"{section}.{key}")
    return tree


def digest(content: object) -> str:
    """Returns a hash of sixteen hex digits of some content, which is written as JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _drop_key(tree: dict[str, Any], key: str) -> None:
    *sections, name = key.split(".")
    node: Any = tree
    for section in sections:
        node = node.get(section) if isinstance(node, dict) else None
    if isinstance(node, dict):
        node.pop(name, None)
