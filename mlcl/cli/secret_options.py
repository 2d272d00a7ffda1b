"""Rejects passwords on the command line, which is public; a variable may have them."""

from __future__ import annotations

import typer

from mlcl.errors import UserError
from mlcl.tracking.uri import shown


def reject_typed_secrets(
    context: typer.Context, option: typer.CallbackParam, value: str | None
) -> str | None:
    """A callback of an option. Raises UserError for a value on the command line that has a password."""
    source = context.get_parameter_source(str(option.name))
    if value is not None and source is not None and source.name == "COMMANDLINE" and shown(value) != value:
        raise UserError(
            "a command line is public: no password in it",
            key=option.opts[0],
            found=shown(value),
            allowed=f"the URL in the variable {option.envvar}, or the password in PGPASSWORD or ~/.pgpass",
        )
    return value
