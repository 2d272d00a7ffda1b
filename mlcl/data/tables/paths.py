"""Recognises paths of levels in a column's cells, such as `Animals > Birds > Parrots`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from mlcl.data.tables.notation import MISSING, SEPARATORS, Cell, alone, divides

PATH_SIGNS = (">>", ">", "::", "/")
"""Separators of the levels of a path."""


def path_sign(cells: Iterable[Cell]) -> str | None:
    """Returns the separator of levels if the cells are paths in a tree, coarse first; else None.

    Cells are paths if 80 % of them have the separator, the names between have five words or fewer on average,
    there are at most half as many distinct first names as distinct paths, less than half of the names are on
    several levels, and no cell has several paths.
    """
    texts = Counter(text for cell in cells if (text := alone(cell)) is not None and text not in MISSING)
    for sign in PATH_SIGNS:
        paths = {text: [part.strip() for part in text.split(sign)] for text in texts}
        deep = {text: path for text, path in paths.items() if len(path) > 1 and all(path)}
        tops = {path[0] for path in deep.values()}
        parts = [part for path in deep.values() for part in path]
        few = sum(len(part.split()) for part in parts) <= 5 * len(parts)
        often = sum(texts[text] for text in deep) >= 0.8 * texts.total()
        tree = 2 * len(tops) <= len(deep) and not _on_several_levels(deep)
        if few and often and len(texts) > 2 and tree:
            return None if several_paths(texts, sign) else sign
    return None


def several_paths(cells: Collection[str], sign: str) -> str | None:
    """Returns the first cell whose parts between `;`, or another separator, are paths; None without one.

    A comma counts only where it seems to divide the cells.
    """
    for separator in SEPARATORS:
        if separator != "," or divides(cells, ","):
            for cell in cells:
                parts = cell.split(separator)
                if len(parts) > 1 and all(sign in part for part in parts):
                    return cell
    return None


def _on_several_levels(paths: Mapping[str, Sequence[str]]) -> bool:
    """Whether half of the names are on several levels, as those of sets are and those of a tree are not."""
    levels: dict[str, set[int]] = defaultdict(set)
    for path in paths.values():
        for level, name in enumerate(path):
            levels[name].add(level)
    return 2 * sum(len(its) > 1 for its in levels.values()) >= len(levels) > 0
