"""The figures of the cells of a table as JSON files, one a cell."""

from __future__ import annotations

import json
from pathlib import Path

from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.results.documents import document
from mlcl.results.table_result import TableResult

FORMAT = 1
"""The version of the files."""


def check_folder(folder: Path) -> None:
    """Raises UserError where `write_cells` could not make files of cells."""
    if not next(its for its in (folder, *folder.absolute().parents) if its.exists()).is_dir():
        raise UserError("not a folder", key="--figures", found=folder)


def write_cells(report: TableResult, folder: Path) -> list[Path]:
    """Writes `ROW/COLUMN.json` for each cell that lacks no figure: whose it is, its settings, its figures."""
    written = []
    head = {"format": FORMAT, "table": report.name, "title": report.title, "unit": report.unit}
    for cell, tree in zip(report.cells, document(report)["cells"], strict=True):
        if any(figure.verdict == "missing" for figure in cell.figures):
            continue
        higher = {figure.name: report.higher[figure.name] for figure in cell.figures}
        file = folder / f"{cell.id}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, json.dumps({**head, "higher": higher, **tree}, indent=1, default=str) + "\n")
        written.append(file)
    return written
