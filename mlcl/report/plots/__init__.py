"""The plots of reports, drawn with matplotlib."""
