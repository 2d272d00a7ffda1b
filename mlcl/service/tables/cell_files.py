"""The figures of cells as files: written one a cell, and read from such folders and from homes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.results.documents import table_document
from mlcl.results.table_result import CellResult, TableResult
from mlcl.store import RunFolders
from mlcl.tracking.names import TABLE_JSON

FORMAT = 1
"""The version of the files."""
MERGED = "merged-"
"""Begins the identity of a table that was merged: its cells are those of others."""
OPTION = "--merge"


@dataclass(frozen=True)
class Part:
    """A cell as it was found at a `place`."""

    place: str
    cell: CellResult

    @property
    def seeds(self) -> int:
        """How many of its seeds have all figures."""
        return sum(None not in values for values in zip(*(f.values for f in self.cell.figures), strict=True))


def check_folder(folder: Path) -> None:
    """Raises UserError where `write_cells` could not make files of cells."""
    if not next(its for its in (folder, *folder.absolute().parents) if its.exists()).is_dir():
        raise UserError("not a folder", key="--figures", found=folder)


def write_cells(report: TableResult, folder: Path) -> list[Path]:
    """Writes `ROW/COLUMN.json` for each cell that lacks no figure: whose it is, its settings, its figures."""
    written = []
    head = {"format": FORMAT, "table": report.name, "title": report.title, "unit": report.unit}
    for cell, tree in zip(report.cells, table_document(report)["cells"], strict=True):
        if any(figure.verdict == "missing" for figure in cell.figures):
            continue
        higher = {figure.name: report.higher[figure.name] for figure in cell.figures}
        file = folder / f"{cell.id}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, json.dumps({**head, "higher": higher, **tree}, indent=1, default=str) + "\n")
        written.append(file)
    return written


def read_parts(place: Path, name: str, unit: str) -> list[Part]:
    """The cells of the table `name` in a home, the latest first, or in a folder that `write_cells` wrote.

    Raises UserError where there is none, where a file is damaged or of another version, and for figures in
    another unit.
    """
    read = _home_cells if (place / "tables").is_dir() else _folder_cells
    found = []
    for file, its_unit, tree in read(place, name):
        if its_unit != unit:
            raise UserError("figures in another unit", file=file, key="unit", found=its_unit, allowed=unit)
        found.append(Part(str(place), _cell(tree, file)))
    if not found:
        raise UserError(
            f"no cells of {name}", key=OPTION, found=place, allowed="a home, or a folder that --figures wrote"
        )
    return found


def _home_cells(home: Path, name: str) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    for folder, record in RunFolders(home, "tables").records():
        file = folder.path / TABLE_JSON
        if record.name == name and not record.job_hash.startswith(MERGED) and file.is_file():
            tree = _read(file)
            for cell in tree.get("cells", ()):
                yield file, tree.get("unit", ""), cell


def _folder_cells(folder: Path, name: str) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    for file in sorted(folder.glob("*/*.json")):
        tree = _read(file)
        if tree.get("table") != name:
            continue
        if tree.get("format") != FORMAT:
            found = tree.get("format")
            raise UserError("figures of another mlcl", file=file, key="format", found=found, allowed=FORMAT)
        yield file, tree.get("unit", ""), tree


def _read(file: Path) -> dict[str, Any]:
    try:
        tree = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise UserError("damaged", file=file, key=OPTION, found=error) from None
    return tree if isinstance(tree, dict) else {}


def _cell(tree: Mapping[str, Any], file: Path) -> CellResult:
    if not tree.get("origin"):
        tree = {**tree, "origin": {}}  # which is refused
    try:
        return TypeAdapter(CellResult).validate_python(tree)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(
            "not the figures of a cell, or of an earlier mlcl", file=file, key=OPTION,
            found=f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            allowed="the files of the same command run again",
        ) from None  # fmt: skip
