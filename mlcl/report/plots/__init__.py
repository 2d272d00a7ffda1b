"""The plots of a report, each drawn by matplotlib for files and by plotly for the page."""
