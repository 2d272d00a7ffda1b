"""Tables of papers: the jobs of their cells, and the figures that a paper prints."""

from mlcl.config.table.cells import Cell, Figure, cells_of
from mlcl.config.table.schema import (
    FOLDER,
    RankTests,
    Scale,
    Table,
    find_table,
    load_table,
    slug,
    table_files,
)

__all__ = [
    "FOLDER",
    "Cell",
    "Figure",
    "RankTests",
    "Scale",
    "Table",
    "cells_of",
    "find_table",
    "load_table",
    "slug",
    "table_files",
]
