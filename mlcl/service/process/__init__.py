"""Tools for the process of a command: signals, standard error, and the machine's limits."""
