"""Prints results to standard output and everything else to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import IO, Any

import typer
import yaml
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from mlcl.config import JobConfig, dump_job, parse_override, read_job
from mlcl.config.loader import yaml_with_origins
from mlcl.errors import UserError, printable
from mlcl.service.process.stderr import own_stderr
from mlcl.tracking.provenance import submitted_id

PLAIN_WIDTH = 155
"""Width of a table in characters where the output is no terminal."""
GAP = 2
"""Spaces between two columns."""


class _Progress(Console):
    """A console that goes silent when its reader ends, where rich would end the command."""

    @property
    def file(self) -> IO[str]:
        """The stream of its output: not standard error while that is a file for the output of libraries."""
        return own_stderr() or super().file

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def on_broken_pipe(self) -> None:
        """Called by rich when the reader has ended."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


errors = _Progress(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())
"""On a terminal lines break at words; elsewhere they stay whole."""
results = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)


class Exit(IntEnum):
    """Exit statuses."""

    DONE = 0
    BAD_INPUT = 2
    FAILED = 3
    BUDGET = 4
    STOPPED = 130


EXIT_OF = {"COMPLETE": Exit.DONE, "FAILED": Exit.FAILED, "BUDGET": Exit.BUDGET, "STOPPED": Exit.STOPPED}
"""The exit status of a run's or a sweep's state."""


def again(*more: str) -> str:
    """A text that says how to continue this command, with `more` options; on a cluster by its id."""
    id = submitted_id()
    words = ["the same command", "with"] if id is None else [f"mlcl resume {id}"]
    return " ".join([*(words if more else words[:1]), *more])


def fail(error: UserError, *, as_json: bool) -> Exit:
    """Prints the error on one line, and for `--json` also as a document. Returns the exit status."""
    errors.print(f"error: {error.line()}", style="red", markup=False)
    if as_json:
        print_json({"error": error.as_dict()})
    return Exit.BAD_INPUT


def say_failed(problem: str, *, as_json: bool = False) -> Exit:
    """Prints why a command failed, for `--json` also as a document. Returns the exit status."""
    errors.print(f"failed: {problem}", style="red", markup=False)
    if as_json:
        print_json({"error": {"problem": problem}})
    return Exit.FAILED


def say_unfinished(state: str, reason: str, name: str) -> None:
    """Prints why the run, sweep or table `name` did not complete, and how to go on with it."""
    if state == "STOPPED":
        say(f"stopped; {again()} goes on with {name}")
    elif state == "BUDGET":
        say(f"{reason}; {again('--budget MORE')} goes on with {name}")
    elif state == "FAILED":
        say_failed(reason)


def print_json(tree: Mapping[str, Any]) -> None:
    """Prints one JSON document."""
    typer.echo(json.dumps(tree, indent=2, default=str))


def print_tree(tree: Mapping[str, Any], *, as_json: bool) -> None:
    """Prints a job or a plan, as YAML that can be read as a file, or as one JSON document."""
    if as_json:
        print_json(tree)
    else:
        typer.echo(yaml.safe_dump(tree, sort_keys=False), nl=False)


def print_job(job: JobConfig, file: Path, overrides: Sequence[str], *, as_json: bool) -> None:
    """Prints a resolved job: as a job file that says in comments where each value is from, or as JSON."""
    if as_json:
        print_json(dump_job(job))
    else:
        written = read_job(file).with_overrides(dict(map(parse_override, overrides)))
        typer.echo(yaml_with_origins(job, written), nl=False)


def answer_to(question: str, option: str) -> str:
    """Asks and returns the typed answer. Raises UserError, which names `option`, where the input ends."""
    try:
        return input(f"{question}: ").strip()
    except EOFError:
        problem = "the input ended before an answer"
        raise UserError(problem, key=option, allowed=f"an answer, or {option}") from None


def tell(text: str) -> None:
    """Prints a line of a result; on a terminal it breaks at words."""
    results.print(text, markup=False, soft_wrap=not sys.stdout.isatty())


def say(text: str) -> None:
    """Prints a line to standard error."""
    errors.print(text, markup=False)


def metrics_table(metrics: Mapping[str, float], title: str) -> Table:
    """The table of final metrics: a row for each metric, columns for validation and test."""
    table = Table(title=title, title_justify="left")
    for column in ("metric", "validation", "test"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for name in sorted({_family(key) for key in metrics if _family(key)}):
        prefix, _, metric = name.rpartition("/")
        lead = f"{prefix}/" if prefix else ""
        values = [metrics.get(f"{lead}{split}/{metric}") for split in ("val", "test")]
        # The name may contain that of an aspect, which comes from the data.
        table.add_row(escape(printable(name)), *("" if value is None else f"{value:.4f}" for value in values))
    return table


def _family(key: str) -> str:
    parts = key.split("/")
    kept = [part for part in parts if part not in ("val", "test")]
    return "/".join(kept) if len(kept) < len(parts) else ""


def is_interactive() -> bool:
    """Whether standard error is a terminal that can be redrawn."""
    return errors.is_terminal and os.environ.get("TERM") != "dumb"


def duration(seconds: float) -> str:
    """`4m10s`, and `3h05m` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def say_undelivered(count: int, home: Path) -> None:
    """Prints how many logs are undelivered, if any are."""
    if count:
        logs = "1 log is" if count == 1 else f"{count} logs are"
        way = "the next command or `mlcl doctor --fix` delivers what is left"
        say(f"MLflow did not answer: {logs} kept in {home / 'logs'}; {way}")


@dataclass(frozen=True)
class Column:
    """A column with its cells. One of `texts` wraps at words. The largest `rank` goes first, 0 never."""

    head: str
    cells: Sequence[str]
    rank: int = 0
    texts: bool = False


def fitted_table(columns: Sequence[Column], title: str = "", console: Console = results) -> Table:
    """Builds a table of as many columns as fit; those of rank 0 always stay, folded where they do not fit."""
    kept = sorted(columns, key=lambda each: each.rank)
    while not (fits := _width(_table(kept)) <= console.width) and kept[-1].rank:
        kept.pop()
    return _table([each for each in columns if each in kept], title, fold=not fits)


def _table(columns: Sequence[Column], title: str = "", *, fold: bool = False) -> Table:
    table = Table(title=Text(title), title_justify="left", box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for each in columns:
        justify: JustifyMethod = "left" if each.texts else "right"
        table.add_column(Text(each.head), justify=justify, no_wrap=not (fold or each.texts), overflow="fold")
    for cells in zip(*(each.cells for each in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table


def _width(table: Table) -> int:
    """The width that a table needs, however narrow the terminal is."""
    wide = Console(width=10_000)
    return Measurement.get(wide, wide.options, table).minimum
