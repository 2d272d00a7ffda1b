"""The command line: parsing, printing and exit codes; no logic."""
