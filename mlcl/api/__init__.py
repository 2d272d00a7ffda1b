"""The Python interface: functions that do the same as commands, and return objects.

The package `mlcl` exports them: `mlcl.run`, `mlcl.baseline`, `mlcl.sweep`, `mlcl.compare`, `mlcl.load` and
`mlcl.prepare`. A call makes the same run, with the same hash and ledger, as the command of its name.
"""
