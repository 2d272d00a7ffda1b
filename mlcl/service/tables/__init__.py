"""A paper's table: what of it is missing is trained, then its figures stand beside the printed ones."""

from mlcl.service.tables.cell_files import check_folder, write_cells
from mlcl.service.tables.cost import plan_table
from mlcl.service.tables.plan import TablePlan
from mlcl.service.tables.table import run_table

__all__ = [
    "TablePlan",
    "check_folder",
    "plan_table",
    "run_table",
    "write_cells",
]
