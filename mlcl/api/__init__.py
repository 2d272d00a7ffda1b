"""The Python interface: functions that do the same as commands, and return objects.

`import mlcl` has the functions of this package as its own: `mlcl.run`, `mlcl.sweep`, `mlcl.compare`,
`mlcl.load`, `mlcl.prepare`. Each call gives the same run, with the same hash and ledger, as its command.
"""
