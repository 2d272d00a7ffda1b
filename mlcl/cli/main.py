"""`mlcl`: the commands and their exit codes.

0 done, 2 usage or bad input, 3 ran but failed, 4 budget reached, 130 stopped.
"""

from __future__ import annotations

import sys

import typer

from mlcl import __version__
from mlcl.cli import data, run, sweep
from mlcl.cli.output import Exit, fail
from mlcl.errors import UserError

app = typer.Typer(
    name="mlcl",
    help="Which multi-label or hierarchical contrastive loss works on your data, and at which settings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("sweep")(sweep.sweep)
app.add_typer(data.app, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mlcl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version_asked: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Options of `mlcl` itself."""


def main() -> None:
    """Runs the command line. An error that the user can mend is one line and exit status 2."""
    try:
        app()
    except UserError as error:
        sys.exit(fail(error, as_json="--json" in sys.argv))
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        sys.exit(Exit.STOPPED)
