"""The process of a command: its signals, its standard error, the machine's limits."""
