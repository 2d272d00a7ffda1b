"""data/sources."""
