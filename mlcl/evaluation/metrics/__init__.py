"""The built-in metrics, one idea a file: each is declared once, see `mlcl.evaluation.metric`."""
