"""The plots of a report, each drawn by matplotlib for files and by plotly for the page."""

from mlcl.report.plots.plot import Plot

__all__ = ["Plot"]
