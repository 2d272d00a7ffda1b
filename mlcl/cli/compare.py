"""`mlcl compare`: settings against the first one, over the seeds that they share."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcl.cli.completion import local_names, metric_names
from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import Column, fitted_table, print_json, results, tell
from mlcl.errors import UserError

What = Annotated[
    list[str],
    typer.Argument(
        metavar="WHAT...",
        autocompletion=local_names,
        help="Sweeps (all settings they confirmed), SWEEP:SETTING, run ids, or 'ROW, COLUMN' of a table.",
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        autocompletion=metric_names,
        help="test/micro_f1, or micro_f1: test before validation; default: the sweep's own goal.",
    ),
]


def compare(
    what: What,
    metric: Metric = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX.")] = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Compare settings by a metric, paired by seed: difference, interval, tests, and what would decide."""
    if markdown + latex + json > 1:
        raise UserError("one form at a time", key="--markdown, --latex, --json", found="several")
    from mlcl.results.comparison import compare_settings
    from mlcl.results.comparison_text import HEADS, RANKS, as_dict, as_latex, as_markdown, grid, notes, title
    from mlcl.results.runs import Runs
    from mlcl.results.settings import find_settings

    found = compare_settings(find_settings(Runs.quickly(home), what), metric or "")
    if json:
        print_json(as_dict(found))
    elif markdown or latex:
        typer.echo(as_markdown(found) if markdown else as_latex(found))
    else:
        cells = zip(HEADS, RANKS, zip(*grid(found), strict=True), strict=True)
        columns = [Column(head, its, rank, texts=not place) for place, (head, rank, its) in enumerate(cells)]
        results.print(fitted_table(columns, title(found)))
        for line in notes(found):
            tell(line)
