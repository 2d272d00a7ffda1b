"""Writes the figures of docs/results.md as JSON.

    python tools/results_json.py docs/results.md > docs/results.json

A record is a cell of a table: its section, the section's commands, row and column, and its figures in order,
each with the standard deviation over seeds and the paper's figure, if the cell has them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIGURE = re.compile(
    r"(?P<value>[+-]?\d+\.\d+)(?: ± (?P<deviation>\d+\.\d+))?(?: \((?P<paper>[+-]?\d+\.\d+)\))?"
)
FENCE = "```"


def figures_of(cell: str) -> list[dict[str, float]]:
    """Returns the figures of a cell such as `77.02 ± 0.56 (71.30)` or `52.08 / 51.90, -0.18 (4.59)`."""
    return [
        {name: float(text) for name, text in match.groupdict().items() if text is not None}
        for match in FIGURE.finditer(cell)
    ]


def cells_of(table: list[str]) -> Iterator[dict[str, Any]]:
    """Yields the cells of a Markdown table that have figures."""
    (_, *columns), _, *rows = ([cell.strip() for cell in line.strip("|\n").split("|")] for line in table)
    for row, *cells in rows:
        for column, cell in zip(columns, cells, strict=True):
            if figures := figures_of(cell):
                yield {"row": row, "column": column, "figures": figures}


def records(page: str) -> Iterator[dict[str, Any]]:
    """Yields a record for each cell of the page's tables."""
    for section in page.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        code = [part.replace("\\\n", " ") for part in body.split(FENCE)[1::2]]
        commands = [" ".join(line.split()) for part in code for line in part.splitlines() if line.strip()]
        for table in re.findall(r"(?:^\|.*\n?)+", "".join(body.split(FENCE)[::2]), re.MULTILINE):
            for cell in cells_of(table.splitlines()):
                yield {"section": title, "commands": commands, **cell}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    lines = [json.dumps(record, ensure_ascii=False) for record in records(Path(sys.argv[1]).read_text())]
    print("[", ",\n".join(lines), "]", sep="\n")
