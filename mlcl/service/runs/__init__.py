"""One training: its folder, its state, and the process or the Ray Train group that runs it."""
