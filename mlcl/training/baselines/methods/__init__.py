"""The baselines: each module here declares one, or a few of a kind, as values of `Baseline`."""
