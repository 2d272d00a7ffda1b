"""Recognises paths of levels in a column's cells, such as `Animals > Birds > Parrots`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from mlcl.data.tables.notation import MISSING, SEPARATORS, Cell, form_of, single_text

PATH_SIGNS = (">>", "->", "=>", ">", "::", "/")
"""Separators of the levels of a path."""


def path_sign(cells: Iterable[Cell]) -> str | None:
    """Returns the separator of levels if the cells are paths in a tree, coarse first; else None.

    Cells are paths if 80 % of them have the separator, the names between separators have five words or fewer
    on average, there are at most half as many distinct first names as distinct paths, less than half of the
    names occur at several levels, and no cell has several paths.
    """
    texts = Counter(text for cell in cells if (text := single_text(cell)) is not None and text not in MISSING)
    for sign in PATH_SIGNS:
        paths = {text: [part.strip() for part in text.split(sign)] for text in texts}
        deep_paths = {text: path for text, path in paths.items() if len(path) > 1 and all(path)}
        top_names = {path[0] for path in deep_paths.values()}
        parts = [part for path in deep_paths.values() for part in path]
        is_short = sum(len(part.split()) for part in parts) <= 5 * len(parts)
        is_frequent = sum(texts[text] for text in deep_paths) >= 0.8 * texts.total()
        is_tree = 2 * len(top_names) <= len(deep_paths) and not _has_recurring_names(deep_paths)
        if is_short and is_frequent and len(texts) > 2 and is_tree:
            return None if several_paths(texts, sign) else sign
    return None


def several_paths(cells: Collection[str], sign: str) -> str | None:
    """Returns the first cell whose parts between `;`, or another separator, are paths; None if there is none.

    Between commas, each part must also be a cell of its own, since names may contain commas.
    """
    for separator in SEPARATORS:
        for cell in cells:
            parts = [part.strip() for part in cell.split(separator)]
            are_paths = all(sign in part and (separator != "," or part in cells) for part in parts)
            if len(parts) > 1 and are_paths:
                return cell
    return None


def two_spellings(paths: Iterable[Sequence[str]]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yields pairs of beginnings of paths whose last names differ only in spelling: `A > Law`, `A > law`."""
    first_path: dict[tuple[str, ...], Sequence[str]] = {}
    for path in paths:
        for depth in range(1, len(path) + 1):
            key = (*path[: depth - 1], form_of(path[depth - 1]))
            other = first_path.setdefault(key, path[:depth])
            if other != path[:depth]:
                yield other, path[:depth]


def _has_recurring_names(paths: Mapping[str, Sequence[str]]) -> bool:
    """Whether at least half of the names occur at several levels, as in label sets but not in a tree.

    A name that a path repeats counts at its first level.
    """
    levels: dict[str, set[int]] = defaultdict(set)
    for path in paths.values():
        for name in path:
            levels[name].add(path.index(name))
    return 2 * sum(len(name_levels) > 1 for name_levels in levels.values()) >= len(levels) > 0
