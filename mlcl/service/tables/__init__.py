"""Reproduces tables of papers: trains the missing cells, and shows their metrics beside the printed ones."""

from mlcl.service.tables.cost import plan_table
from mlcl.service.tables.plan import TablePlan
from mlcl.service.tables.table import run_table
from mlcl.service.tables.table_log import check_folder, write_cells

__all__ = [
    "TablePlan",
    "check_folder",
    "plan_table",
    "run_table",
    "write_cells",
]
