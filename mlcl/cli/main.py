"""`mlcl`: the commands and their exit codes.

0 done, 2 usage or bad input, 3 ran but failed, 4 budget reached, 130 stopped.
"""

from __future__ import annotations

import errno
import signal
import sys
import traceback

import typer

from mlcl import __version__
from mlcl.cli import (
    baseline,
    clean,
    compare,
    data,
    doctor,
    export,
    init,
    jobs,
    plugins,
    posthoc,
    predict,
    report,
    reproduce,
    run,
    service,
    space,
    sweep,
)
from mlcl.cli.output import Exit, fail, say_failed
from mlcl.errors import MachineError, UserError

MAX_PROBLEM = 500
"""Characters of an unexpected error that its line has."""

app = typer.Typer(
    name="mlcl",
    help="Which multi-label or hierarchical contrastive loss works on your data, and at which settings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("init")(init.init)
app.command("run")(run.run)
app.command("baseline")(baseline.baseline)
app.command("sweep")(sweep.sweep)
app.command("reproduce")(reproduce.reproduce)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("posthoc")(posthoc.posthoc)
app.command("export")(export.export)
app.command("predict")(predict.predict)
app.command("doctor")(doctor.doctor)
app.command("clean")(clean.clean)
app.command("up")(service.up)
app.command("down")(service.down)
app.command("status")(jobs.status)
app.command("submit", context_settings=jobs.WORDS)(jobs.submit)
app.command("list")(jobs.list_jobs)
app.command("logs")(jobs.logs)
app.command("stop")(jobs.stop)
app.command("resume", context_settings=jobs.MORE)(jobs.resume)
app.command("losses")(plugins.losses)
app.command("metrics")(plugins.metrics)
app.command("encoders")(plugins.encoders)
app.command("baselines")(plugins.baselines)
app.add_typer(data.app, name="data")
app.add_typer(space.app, name="space")


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
    """Runs the command line. A UserError is printed on one line and gives exit status 2."""
    try:
        app()
    except UserError as error:
        sys.exit(fail(error, as_json="--json" in sys.argv))
    except KeyboardInterrupt:
        sys.exit(Exit.STOPPED)
    except MachineError as error:
        sys.exit(_failed(str(error), error))
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            sys.exit(_disk_full(error))
        # A bug or a fault of the machine: the whole trace, here or in the file that a note names.
        problem = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_PROBLEM]
        if not getattr(error, "__notes__", ()):
            traceback.print_exc()
        sys.exit(_failed(problem, error))
    finally:
        # A Ctrl-C while the interpreter ends must not change the exit status.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


def _disk_full(error: OSError) -> Exit:
    problem = f"no space left on the device{f' for {error.filename}' if error.filename else ''}"
    return _failed(problem, error)


def _failed(problem: str, error: Exception) -> Exit:
    return say_failed("; ".join([problem, *getattr(error, "__notes__", ())]), as_json="--json" in sys.argv)
