"""Runs the trainings of sweeps and tables: ledger, executor on Ray Tune, budget, recovery and progress."""
