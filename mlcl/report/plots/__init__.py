"""The report's pictures: each drawn by matplotlib for files and by plotly to explore, from one table."""

from mlcl.report.plots.plot import Plot

__all__ = ["Plot"]
