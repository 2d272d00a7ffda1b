"""The command line `mlcl`, with all commands and their exit codes.

The exit codes are: 0 done, 2 usage or bad input, 3 ran but failed, 4 budget reached, 130 stopped.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import typer

from mlcl import __version__
from mlcl.cli import (
    cluster_check,
    compare,
    data,
    init,
    jobs,
    models,
    packaged,
    plugins,
    reproduce,
    run,
    runs,
    service,
    space,
    sweep,
    upkeep,
)
from mlcl.cli.output import Exit, fail
from mlcl.errors import MachineError, UserError
from mlcl.extras import missing_extra
from mlcl.files import DISK_IS_FULL
from mlcl.service.process.limits import too_few_addresses
from mlcl.tracking.uri import KEY, hide_password

MAX_PROBLEM = 500
"""The largest number of characters of an unexpected error that are printed."""
DISK_FAULTS = {
    **dict.fromkeys(DISK_IS_FULL, "no space left on the device"),
    **dict.fromkeys(
        (errno.ENOLCK, errno.EOPNOTSUPP), "give a --home on a disk with file locks: there are none"
    ),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "no permission"),
    errno.EROFS: "the disk is read-only",
    errno.ENOTDIR: "a file is where a folder should be",
    errno.EFBIG: "larger than `ulimit -f` or the disk allows",
    errno.EXDEV: "give a --home on a disk that renames: this one does not,",
}
"""The messages for errors of the operating system, keyed by `errno`."""
STORE_AWAY = "INTERNAL_ERROR"
"""The `error_code` of MLflow's exception if a server does not answer, or answers with status 500."""

app = typer.Typer(
    name="mlcl",
    help="Which multi-label or hierarchical contrastive loss works on your data, and at which settings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PARTS = "What there is"
COMMANDS: dict[str, dict[str, tuple[Callable[..., None], str]]] = {
    "Train": {
        "init": (init.init, "mlcl init texts.csv"),
        "run": (run.run, "mlcl run job.yaml train.epochs=30"),
        "baseline": (run.baseline, "mlcl baseline job.yaml"),
        "sweep": (sweep.sweep, "mlcl sweep job.yaml space.yaml --trials 24 --seeds 5"),
        "reproduce": (reproduce.reproduce, "mlcl reproduce mlcl-table4 --dry-run"),
    },
    "Results": {
        "list": (runs.list_runs, "mlcl list"),
        "show": (runs.show, "mlcl show @last"),
        "open": (runs.open_page, "mlcl open my-sweep"),
        "compare": (compare.compare, "mlcl compare my-sweep"),
        "report": (runs.report, "mlcl report my-sweep"),
        "effect": (compare.effect, "mlcl effect my-sweep section.temperature --at section.weight=0.2"),
        "posthoc": (compare.posthoc, "mlcl posthoc my-sweep"),
    },
    "Models": {
        "export": (models.export, "mlcl export my-sweep --to model"),
        "predict": (models.predict, "mlcl predict model texts.csv"),
    },
    "This machine and clusters": {
        "up": (service.up, "mlcl up"),
        "down": (service.down, "mlcl down"),
        "status": (jobs.status, "mlcl status"),
        "submit": (jobs.submit, "mlcl submit sweep job.yaml space.yaml"),
        "logs": (jobs.logs, "mlcl logs -f ID"),
        "stop": (jobs.stop, "mlcl stop ID"),
        "resume": (jobs.resume, "mlcl resume ID --trials 48"),
        "doctor": (upkeep.doctor, "mlcl doctor --fix"),
        "clean": (upkeep.clean, "mlcl clean --dry-run"),
        "import": (upkeep.import_home, "mlcl import other-machine/outputs"),
    },
    PARTS: {
        "losses": (plugins.listing_command("losses"), "mlcl losses himulcone"),
        "metrics": (plugins.listing_command("metrics"), "mlcl metrics"),
        "encoders": (plugins.listing_command("encoders"), "mlcl encoders transformer"),
        "baselines": (plugins.listing_command("baselines"), "mlcl baselines"),
    },
}
"""The groups of `mlcl --help`, with the function and an example of each command."""
for _group, _commands in COMMANDS.items():
    for _name, (_command, _example) in _commands.items():
        app.command(
            _name,
            cls=jobs.SubmitCommand if _name == "submit" else None,
            rich_help_panel=_group,
            epilog=f"Example: {_example}",
            context_settings={"submit": jobs.WORDS, "resume": jobs.MORE}.get(_name),
        )(_command)
app.command("cluster-check", hidden=True)(cluster_check.cluster_check)
for _name, _part in {"jobs": packaged, "data": data, "models": models, "space": space}.items():
    app.add_typer(_part.app, name=_name, rich_help_panel=PARTS)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"mlcl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _show_version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Declares the options of `mlcl` itself, which typer passes here."""


def _check_folders() -> None:
    """Raises MachineError if the current folder or the user's home folder is missing: libraries need both."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise MachineError("the current folder was removed: change to another one") from None
    try:
        Path.home()
    except RuntimeError:
        raise MachineError(f"no home folder of user {os.getuid()}: set HOME to one") from None


def main() -> None:
    """Runs the command line. A UserError is printed on one line and gives exit status 2."""
    try:
        _check_folders()
        app()
    except UserError as error:
        sys.exit(fail(error, as_json="--json" in sys.argv))
    except KeyboardInterrupt:
        sys.exit(Exit.STOPPED)
    except Exception as error:
        problem = "; ".join([_describe_error(error), *getattr(error, "__notes__", ())])
        sys.exit(fail(problem, as_json="--json" in sys.argv))
    finally:
        # A Ctrl-C while the interpreter ends must not change the exit status.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


def _describe_error(error: Exception) -> str:
    """Returns the error as one line. Prints an unexpected error's traceback, unless a note names its file."""
    if isinstance(error, MachineError):
        return str(error)
    if isinstance(error, ImportError) and (text := missing_extra(error)):
        return f"this command {text}"
    if isinstance(error, OSError) and error.errno in DISK_FAULTS:
        return DISK_FAULTS[error.errno] + (f" for {error.filename}" if error.filename else "")
    limit = too_few_addresses(error)
    if not (limit or getattr(error, "error_code", "") == STORE_AWAY or getattr(error, "__notes__", ())):
        traceback.print_exc()
    problem = limit or " ".join(f"{type(error).__name__}: {error}".split())
    # MLflow's errors contain the URI of the tracking server, which may have a password.
    uri = os.environ.get(KEY)
    message = problem.replace(uri.rstrip("/"), hide_password(uri).rstrip("/")) if uri else problem
    return message if limit else message[:MAX_PROBLEM]
