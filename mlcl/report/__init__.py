"""What runs say together: comparisons, plots, reports. Reads MLflow; may import tracking and evaluation."""
