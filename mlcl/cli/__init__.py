"""The command line: parses arguments, prints results and sets exit codes. Other packages do the work."""
