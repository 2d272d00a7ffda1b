"""Comparisons, plots and reports of runs, read from MLflow."""
