"""A report as Markdown; its pictures are files beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pandas as pd

from mlcl.markup import markdown, markdown_table
from mlcl.report.document import DIGITS, Block, Cell, Code, Details, Document, Picture, Table, Text

PICTURES = "plots"


def as_markdown(document: Document, link: Callable[[str], str]) -> str:
    """The document as Markdown; `link` gives the URL of a run."""
    parts = [f"# {markdown(document.title)}", markdown(document.about)]
    for section in document.sections:
        parts += [f"## {markdown(section.title)}", *_blocks(section.blocks, link, 3)]
    return "\n\n".join(part for part in parts if part) + "\n"


def blocks_as_markdown(blocks: Sequence[Block], link: Callable[[str], str]) -> list[str]:
    """The texts of the blocks, without pictures."""
    return _blocks([block for block in blocks if not isinstance(block, Picture)], link, 3)


def _blocks(blocks: Sequence[Block], link: Callable[[str], str], level: int) -> list[str]:
    return [part for block in blocks for part in _block(block, link, level)]


def _block(block: Block, link: Callable[[str], str], level: int) -> list[str]:
    match block:
        case Text(text):
            return [markdown(text)]
        case Code(text):
            # Longer than any fence in the text, which would end the block.
            fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", text)), 0)
            return [f"{fence}yaml\n{text.rstrip()}\n{fence}"]
        case Table(heads, rows, left):
            if not rows:
                return []
            return [
                markdown_table(
                    [markdown(head) for head in heads],
                    [[_cell(cell, link) for cell in row] for row in rows],
                    left,
                )
            ]
        case Picture(plot):
            image = f"![{markdown(plot.title)}]({PICTURES}/{plot.name}.svg)"
            heading = f"{'#' * level} {markdown(plot.title)}"
            return [
                heading,
                image,
                markdown(plot.caption),
                f"Its figures: [{plot.name}.csv]({PICTURES}/{plot.name}.csv)",
            ]
        case Details(title, inner):
            return [f"{'#' * level} {markdown(title)}", *_blocks(inner, link, level + 1)]


def _cell(cell: Cell, link: Callable[[str], str]) -> str:
    text = f"**{markdown(cell.text)}**" if cell.best else markdown(cell.text)
    return f"[{text}]({link(cell.run_id)})" if cell.run_id and text else text


def frame_rows(table: pd.DataFrame) -> list[list[str]]:
    """The rows of a plot's table as text; numbers have `DIGITS` + 1 significant digits."""
    return [[_text(value) for value in row] for row in table.itertuples(index=False)]


def _text(value: object) -> str:
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:.{DIGITS + 1}g}"
    return "" if value is None or value is pd.NA else str(value)
