"""A paper's table: what of it is missing is trained, then its figures stand beside the printed ones."""

from mlcl.service.reproduce.command import run_table
from mlcl.service.reproduce.cost import plan_table
from mlcl.service.reproduce.outcome import CellReport, FigureReport, TableReport
from mlcl.service.reproduce.plan import TablePlan

__all__ = ["CellReport", "FigureReport", "TablePlan", "TableReport", "plan_table", "run_table"]
