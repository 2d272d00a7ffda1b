"""Tables of papers: which jobs their cells are, and what the papers print."""

from mlcl.config.table.cells import Cell, Figure, cells_of
from mlcl.config.table.loader import find_table, load_table, table_files
from mlcl.config.table.schema import Ranks, Scale, Table, slug

__all__ = [
    "Cell",
    "Figure",
    "Ranks",
    "Scale",
    "Table",
    "cells_of",
    "find_table",
    "load_table",
    "slug",
    "table_files",
]
