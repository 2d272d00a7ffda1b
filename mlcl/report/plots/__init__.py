"""The plots of a report, drawn by matplotlib."""
