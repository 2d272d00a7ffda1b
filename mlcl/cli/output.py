"""Prints results to standard output and everything else to standard error."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import typer
from rich.box import HEAVY_HEAD, Box
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from mlcl.config import JobConfig, dump_job, parse_override, read_job
from mlcl.config.loader import yaml_with_origins
from mlcl.config.safe_yaml import dump_yaml
from mlcl.errors import UserError, escape_unprintable
from mlcl.service.process.stderr import own_stderr
from mlcl.significance.roles import by_split
from mlcl.tracking.provenance import submitted_id

if TYPE_CHECKING:
    from mlcl.results.sweep_result import SweepResult
    from mlcl.results.table_result import TableResult
    from mlcl.service.run_job import RunReport

    Report = RunReport | SweepResult | TableResult

PLAIN_WIDTH = 155
"""The width of a table in characters if standard output is not a terminal."""
GAP = 2
"""The number of spaces between two columns."""


class _ErrorConsole(Console):
    """A console for standard error that becomes silent if the reader of its pipe ends; rich would exit."""

    @property
    def file(self) -> IO[str]:
        """Standard error; while `stderr_to_file` redirects it, the original standard error."""
        return own_stderr() or super().file

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def on_broken_pipe(self) -> None:
        """Makes the console silent. Rich calls this when the reader of the pipe has ended."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


errors = _ErrorConsole(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())
"""The console for standard error. Long lines are wrapped at words only if it is a terminal."""
results = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)


class Exit(IntEnum):
    """The exit statuses of `mlcl`."""

    DONE = 0
    BAD_INPUT = 2
    FAILED = 3
    BUDGET = 4
    STOPPED = 130


EXIT_OF = {
    "COMPLETE": Exit.DONE,
    "FAILED": Exit.FAILED,
    "REFUSED": Exit.BAD_INPUT,
    "BUDGET": Exit.BUDGET,
    "STOPPED": Exit.STOPPED,
}
"""The exit status of a command, keyed by the final state of its run, sweep or job on a cluster."""


def continue_text(*more: str) -> str:
    """Returns text on how to continue this command with options `more`; in a job, `mlcl resume ID`."""
    id = submitted_id()
    words = ["the same command", "with"] if id is None else [f"mlcl resume {id}"]
    return " ".join([*(words if more else words[:1]), *more])


def fail(error: UserError | str, *, as_json: bool = False) -> Exit:
    """Prints the error of a command, with `as_json` also as a JSON document, and returns the exit status."""
    if isinstance(error, UserError):
        status, text, tree = Exit.BAD_INPUT, f"error: {error.line()}", error.as_dict()
    else:
        status, text, tree = Exit.FAILED, f"failed: {error}", {"problem": error}
    errors.print(text, style="red", markup=False)
    if as_json:
        print_json({"error": tree})
    return status


def finish(report: Report, name: str, home: Path, complete: str = "", *, failed: bool = False) -> NoReturn:
    """Prints undelivered logs and how to go on, or the line `complete`; exits by the report's state."""
    if count := report.undelivered:
        logs = "1 log is" if count == 1 else f"{count} logs are"
        remedy = "the next command or `mlcl doctor --fix` delivers what is left"
        say(f"MLflow did not answer: {logs} kept in {home / 'logs'}; {remedy}")
    if report.state == "COMPLETE":
        if complete:
            errors.print(complete, style="red" if failed else None, markup=False)
        raise typer.Exit(Exit.FAILED if failed else Exit.DONE)
    if report.state == "STOPPED" and report.reason:  # by a full disk, and not by the user
        raise typer.Exit(fail(f"{report.reason}; {continue_text()} goes on with {name}"))
    if report.state == "STOPPED":
        say(f"stopped; {continue_text()} goes on with {name}")
    elif report.state == "BUDGET":
        say(f"{report.reason}; {continue_text('--budget MORE')} goes on with {name}")
    else:
        fail(report.reason)
    raise typer.Exit(EXIT_OF[report.state])


def print_json(tree: Mapping[str, Any]) -> None:
    """Prints one JSON document, with null for numbers that are not finite."""
    typer.echo(json.dumps(_replace_nonfinite(tree), indent=2, default=str, allow_nan=False))


def _replace_nonfinite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_nonfinite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def answer(tree: Mapping[str, Any], *shown: str | Table, as_json: bool) -> None:
    """Prints a result: the texts and tables `shown`, or `tree` as a JSON document."""
    if as_json:
        print_json(tree)
        return
    for item in shown:
        if isinstance(item, str):
            typer.echo(item)
        else:
            results.print(item)


def print_tree(tree: Mapping[str, Any], *, as_json: bool) -> None:
    """Prints a job or a plan, as YAML that can be read as a file, or as one JSON document."""
    if as_json:
        print_json(tree)
    else:
        typer.echo(dump_yaml(tree), nl=False)


def print_job(job: JobConfig, file: Path, overrides: Sequence[str], *, as_json: bool) -> None:
    """Prints a resolved job: as a job file with comments that give the origin of values, or as JSON."""
    if as_json:
        print_json(dump_job(job))
    else:
        source_job = read_job(file).with_overrides(dict(map(parse_override, overrides)))
        typer.echo(yaml_with_origins(job, source_job), nl=False)


def answer_to(question: str) -> str:
    """Asks a question and returns the typed answer. Raises UserError at the end of the input."""
    try:
        return input(f"{question}: ").strip()
    except EOFError:
        problem = "the input ended before an answer"
        raise UserError(problem, key="--yes", allowed="an answer, or --yes") from None


def tell(text: str) -> None:
    """Prints a line of a result. It is wrapped at words only on a terminal."""
    results.print(text, markup=False, soft_wrap=not sys.stdout.isatty())


def say(text: str) -> None:
    """Prints a line to standard error."""
    errors.print(text, markup=False)


def metrics_table(metrics: Mapping[str, float], title: str) -> Table:
    """Returns a table of a training's final metrics, with columns for validation and test."""
    rows = []
    for name, splits in sorted(by_split(metrics).items()):
        values = [metrics.get(splits.get(split, "")) for split in ("val", "test")]
        # The name may contain the name of an aspect, which comes from the data.
        rows.append(
            [escape_unprintable(name), *("" if value is None else f"{value:.4f}" for value in values)]
        )
    return boxed_table(("metric", "validation", "test"), rows, title, right=("validation", "test"))


def is_interactive() -> bool:
    """Whether standard error is a terminal that can be redrawn."""
    return errors.is_terminal and os.environ.get("TERM") != "dumb"


def boxed_table(
    heads: Iterable[str],
    rows: Iterable[Iterable[str]],
    title: str = "",
    *,
    right: Container[str] = (),
    fold: bool = False,
    box: Box | None = HEAVY_HEAD,
) -> Table:
    """Returns a table of texts with ruled lines. Columns with a head in `right` are aligned right."""
    table = Table(title=escape(title), title_justify="left", box=box)
    for head in heads:
        justify: JustifyMethod = "right" if head in right else "left"
        table.add_column(Text(head), justify=justify, overflow="fold" if fold else "ellipsis")
    for cells in rows:
        table.add_row(*map(Text, cells))
    return table


def fitted_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str = "",
    *,
    ranks: Sequence[int] = (),
    texts: Container[int] = (0,),
    console: Console = results,
) -> Table:
    """Returns a table without ruled lines that fits the console.

    If it is too wide, columns are dropped, those with the largest rank in `ranks` first; those of rank 0 are
    folded. Columns at the indices `texts` are aligned left and wrapped at words.
    """

    def table(columns: Iterable[int], title: str = "", *, fold: bool = False) -> Table:
        result = Table(
            title=Text(title), title_justify="left", box=None, padding=(0, GAP, 0, 0), pad_edge=False
        )
        for column in columns:
            wraps, justify = fold or column in texts, "left" if column in texts else "right"
            result.add_column(Text(heads[column]), justify=justify, no_wrap=not wraps, overflow="fold")  # type: ignore[arg-type]
        for cells in rows:
            result.add_row(*(Text(cells[column]) for column in columns))
        return result

    rank = [*ranks, *[0] * len(heads)]
    columns = sorted(range(len(heads)), key=lambda column: rank[column])
    while not (fits := _minimum_width(table(columns)) <= console.width) and rank[columns[-1]]:
        columns.pop()
    return table(sorted(columns), title, fold=not fits)


def _minimum_width(table: Table) -> int:
    """Returns the smallest width of a table, which does not depend on the width of the terminal."""
    console = Console(width=10_000)
    return Measurement.get(console, console.options, table).minimum
