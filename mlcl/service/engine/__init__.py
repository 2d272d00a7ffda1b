"""Runs the trainings of sweeps and tables: ledger, execution on Ray Tune, budget, recovery, progress."""
