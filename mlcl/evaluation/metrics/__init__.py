"""The built-in metrics, each declared once as a `Metric`."""
