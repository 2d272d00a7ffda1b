"""`mlcl init`: a job and a space for a file of data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import answer_to, print_json
from mlcl.errors import printable


def init(
    path: Annotated[
        Path, typer.Argument(help=".csv .tsv .jsonl .parquet, a folder of images, or a prepared data set.")
    ],
    text: Annotated[str | None, typer.Option("--text", help="The column of the texts.")] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--labels", help="The column of the labels; several are levels.")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="The column of what stays in one split, such as a patient.")
    ] = None,
    encoding: Annotated[str, typer.Option("--encoding", help="Of a CSV file.")] = "utf-8-sig",
    to: Annotated[Path, typer.Option("--to", help="The folder to write to.")] = Path(),
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: what is not clear is an error.")] = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Look at data, say what is there, and write job.yaml, space.yaml and a README with the next commands."""
    from mlcl.service.starter.starter import start

    ask = None if yes or json or not sys.stdin.isatty() else _ask
    made = start(path, to, home, text, labels or [], ask, encoding, group)
    if json:
        print_json({"found": made.found, "rules": made.rules, "files": made.files, "data": made.data})
        return
    for line in (*made.found, "", *made.rules, "", f"wrote {', '.join(map(str, made.files))}"):
        typer.echo(printable(line))
    typer.echo(f"next: {made.next}")


def _ask(question: str, answers: Sequence[str], default: str) -> str:
    typer.echo(printable(f"{question} {', '.join(answers)}"))
    return answer_to(f"Answer [{default}]", "--text, --labels or --yes") or default
