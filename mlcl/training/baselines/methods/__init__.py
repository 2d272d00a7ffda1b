"""The built-in baselines: each module declares one or several similar ones as values of `Baseline`."""
