"""Makes reports of sweeps, tables and runs, with their plots, from what MLflow has of them."""
