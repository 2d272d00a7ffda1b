"""The options that several commands have, and functions for the shell's completion of their values.

These functions return the candidates that begin with the typed text. They return none if a file or a name
cannot be read, since completion prints no errors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

import typer

from mlcl.errors import UserError
from mlcl.store import Database, RunFolders

DEFAULT_HOME = Path("outputs")


def local_names(incomplete: str) -> list[str]:
    """Completes the name of a sweep or table of the home."""
    folders = [RunFolders(home_in_shell(), kind) for kind in ("sweeps", "tables")]
    try:
        return match_beginning(
            incomplete, (record.name for folder in folders for _, record in folder.records())
        )
    except UserError:
        return []


def job_keys(context: typer.Context, incomplete: str) -> list[str]:
    """Completes `key.path=` to a key of the job file that was typed before."""
    from mlcl.config import dump_job, flatten, load_job
    from mlcl.plugins import only_reading

    try:
        with only_reading():
            job = load_job(Path(str(context.params.get("job"))), [])
    except UserError:
        return []
    return match_beginning(incomplete, (f"{key}=" for key in flatten(dump_job(job))))


def metric_names(incomplete: str) -> list[str]:
    """Completes the name of a metric, without a split or after `val/` or `test/`."""
    from mlcl.plugins import registry

    names = list(registry("metrics"))
    return match_beginning(
        incomplete, names + [f"{split}/{name}" for split in ("val", "test") for name in names]
    )


def home_in_shell() -> Path:
    """Returns the home in which completion looks up names: MLCL_HOME, or the default."""
    return Path(os.environ.get("MLCL_HOME", DEFAULT_HOME)).expanduser()


def match_beginning(incomplete: str, candidates: Iterable[str]) -> list[str]:
    """Returns the candidates that begin with the typed text, sorted and without duplicates."""
    return sorted({candidate for candidate in candidates if candidate.startswith(incomplete)})


def is_typed(context: typer.Context, option: str) -> bool:
    """Whether an option was typed on the command line, and not set by an environment variable."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def reject_typed_secrets(
    context: typer.Context, option: typer.CallbackParam, value: str | None
) -> str | None:
    """Returns the URL that an option has. Raises UserError if it was typed and contains a password."""
    if value is None or not is_typed(context, str(option.name)):
        return value
    from mlcl.tracking.uri import hide_password

    if hide_password(value) != value:
        raise UserError(
            "a command line is public: no password in it",
            key=option.opts[0],
            found=hide_password(value),
            allowed=f"the URL in the variable {option.envvar}, or the password in PGPASSWORD or ~/.pgpass",
        )
    return value


def check_control(control: Path | None, *, no_control: bool) -> None:
    """Raises UserError if a sweep is given both a control and `--no-control`."""
    if control is not None and no_control:
        raise UserError("excludes --no-control", key="--control", found=control)


def check_writable(file: Path, key: str) -> None:
    """Raises UserError if the file that the option `key` names cannot be written."""
    if file.exists() and not file.is_file():
        raise UserError("is no file", file=file, key=key)
    try:
        TemporaryFile(dir=file.parent).close()
    except OSError as error:
        raise UserError("cannot be written", file=file, key=key, found=error.strerror) from None


def _check_home(context: typer.Context, home: Path) -> Path:
    """Returns the home with `~` expanded. Raises UserError if it is a file.

    For all commands but `doctor` also raises UserError if the home's database is damaged or was written by a
    later version of mlcl.
    """
    home = home.expanduser()
    if home.is_file():
        raise UserError("is a file", key="--home", found=home, allowed="a folder, which need not exist")
    if context.info_name != "doctor":
        Database(home).check_version()
    return home


Overrides = Annotated[
    list[str] | None, typer.Argument(help="key.path=value, any key of the job.", autocompletion=job_keys)
]
ENCODING = "utf-8-sig"
Text = Annotated[
    list[str] | None,
    typer.Option("--text", help="The column of texts, images or vectors; several texts are joined."),
]
Encoding = Annotated[str, typer.Option("--encoding", help="Of a text file, such as cp1252.")]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="Between the fields of CSV; default: as the file has it.")
]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether the first line of CSV names the columns.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines.")]
Cpus = Annotated[float, typer.Option("--cpus", min=0.01, help="CPUs of a training's process.")]
Gpus = Annotated[
    float | None,
    typer.Option(
        "--gpus", min=0, help="GPU share of a training's process; default: one where there are any."
    ),
]
BudgetText = Annotated[str | None, typer.Option("--budget", help="Stop there: 2h, 30cpu-h or 8gpu-h.")]
Parallel = Annotated[
    int | None,
    typer.Option(
        "--parallel", min=1, help="Trainings at once; default: what fits. On a cluster, more wait for nodes."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, print the plan, start nothing.")]
PrintConfig = Annotated[
    bool,
    typer.Option("--print-config", help="Print the resolved job, with the origin of each value, and exit."),
]
StrictCode = Annotated[
    bool, typer.Option("--strict-code", help="Refuse to go on with what other code has begun.")
]
Home = Annotated[
    Path,
    typer.Option(
        "--home",
        envvar="MLCL_HOME",
        callback=_check_home,
        help="Where data, runs and the local tracking store live.",
    ),
]
