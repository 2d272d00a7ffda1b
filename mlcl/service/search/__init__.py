"""A sweep: settings drawn with Optuna, pruned, and the best confirmed on fresh seeds."""
