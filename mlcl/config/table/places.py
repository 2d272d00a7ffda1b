"""Where the data of a table's cells lie: the sources that they name, and the places on the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcl.config.loader import apply_overrides
from mlcl.config.table.tree import section_of
from mlcl.errors import UserError

PLACES = ("data", "evaluation.transfer_to")
"""The sections of a job that name a data set."""


def placed(tree: dict[str, Any], section: str, data: Mapping[str, str]) -> dict[str, Any]:
    """The tree with a source's files, or a prepared folder in its place, from the command line."""
    node, source = section_of(tree, section), _source_of(tree, section)
    if node is None or source is None or source not in data:
        return tree
    # However it is written, it is one place.
    place = data[source] if "://" in data[source] else str(Path(data[source]).expanduser())
    if not _is_prepared(place):
        return apply_overrides(tree, {f"{section}.options.path": place})
    kept = {key: value for key, value in node.items() if key not in ("source", "options", "split_seed")}
    return apply_overrides(tree, {section: {**kept, "path": place}})


def check_places(
    data: Mapping[str, str], asked: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]
) -> None:
    """Raises UserError for a source that no cell takes, be it `asked` for or one of the `others`, and for a
    prepared folder in the place of several versions of a source: files are prepared as each cell needs them.
    """
    used = {_source_of(tree, section) for tree in (*asked, *others) for section in PLACES}
    known = sorted(source for source in used if source is not None)
    for source, place in data.items():
        if source not in known:
            raise UserError("no cell takes this source", key="--data", found=source, allowed=known or "none")
        sections = [(tree, section) for tree in asked for section in PLACES]
        versions = {_version_of(*its) for its in sections if _source_of(*its) == source}
        if _is_prepared(place) and len(versions) > 1:
            raise UserError(
                "the cells take several versions of this source, and a prepared folder is one",
                key="--data",
                found=f"{source}={place}",
                allowed="the source's files, or --only with cells of one version",
            )


def _is_prepared(place: str) -> bool:
    """Whether a prepared data set lies there, not a source's files; what is far away is taken to be one."""
    return "://" in place or (Path(place).expanduser() / "dataset.json").is_file()


def _version_of(tree: dict[str, Any], section: str) -> str:
    """Tells what a source makes under the options of one cell from what it makes under those of another."""
    node = section_of(tree, section) or {}
    options = {key: value for key, value in (node.get("options") or {}).items() if key != "path"}
    return json.dumps([options, node.get("split_seed")], sort_keys=True, default=str)


def _source_of(tree: dict[str, Any], section: str) -> str | None:
    """The source that a section of the tree names, if any."""
    source = (section_of(tree, section) or {}).get("source")
    return source if isinstance(source, str) else None
