"""Runs sweeps: draws settings with Optuna, prunes trials, and trains the best again on fresh seeds."""
