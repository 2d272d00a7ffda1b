"""`mlcl space`: what a space file varies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from mlcl.cli.options import Json, Overrides
from mlcl.cli.output import print_json, results
from mlcl.config import load_job, load_space

VALUES_SHOWN = 10
"""Most values of a post-hoc key that are listed; of more, the first and the last."""
app = typer.Typer(help="Look at space files.", no_args_is_help=True)


@app.callback()
def _options() -> None:
    """Look at space files."""


@app.command()
def describe(
    space: Annotated[Path, typer.Argument(help="The space file.")],
    job: Annotated[Path, typer.Argument(help="The job file.")],
    overrides: Overrides = None,
    json: Json = False,
) -> None:
    """Check a space against a job; show what it varies, how it is searched, and one draw."""
    checked = load_job(job, overrides or [])
    checked_space = load_space(space, checked)

    from mlcl.service.search.sampling import describe as describe_space

    described = describe_space(checked_space, checked)
    if json:
        print_json({"space": str(space), "job": str(job), **described})
        return
    if described["parameters"]:
        results.print(_parameters(described, str(space)))
    if described["posthoc"]:
        results.print(_posthoc(described["posthoc"]))
    typer.echo("\n".join(_lines(described)))


def _parameters(described: Mapping[str, Any], title: str) -> Table:
    """The table of parameters; the weights of a simplex share a row."""
    table = Table(title=title, title_justify="left")
    for column in ("parameter", "kind", "values", "scale", "when"):
        table.add_column(column, overflow="fold")
    for parameter in described["parameters"]:
        kind = parameter["kind"]
        name = parameter["name"] if kind != "simplex" else "\n".join(parameter["keys"])
        table.add_row(name, kind, _values(parameter), parameter.get("scale", ""), parameter["when"] or "")
    return table


def _values(parameter: Mapping[str, Any]) -> str:
    if parameter["kind"] == "choice":
        return ", ".join(map(str, parameter["values"]))
    low, high = parameter["low"], parameter["high"]
    text = f"{low:g} to {high:g}" if low < high else f"{low:g}"
    return f"{parameter['weights']} weights, total {text}" if parameter["kind"] == "simplex" else text


def _posthoc(posthoc: Mapping[str, Any]) -> Table:
    title = f"scored after training, {posthoc['settings']:,} settings a trial"
    table = Table(title=title, title_justify="left")
    for column in ("key", "points", "values"):
        table.add_column(column, overflow="fold", justify="right" if column == "points" else "left")
    for key, values in posthoc["grid"].items():
        whose = "" if key in posthoc["varied"] else " (the job's grid)"
        many = len(values) > VALUES_SHOWN
        text = (" ... " if many else ", ").join(
            f"{x:g}" for x in ((values[0], values[-1]) if many else values)
        )
        table.add_row(f"evaluation.knn.{key}{whose}", str(len(values)), text)
    return table


def _lines(described: Mapping[str, Any]) -> list[str]:
    goals = ", ".join(f"{goal['metric']} ({goal['mode']})" for goal in described["goals"])
    by = f" by {described['prune_by']}" if described["prune_by"] else ""
    combinations = described["combinations"]
    lines = [
        f"combinations: {combinations if isinstance(combinations, str) else f'{combinations:,}'}",
        f"goal: {goals}",
        f"sampler: {described['sampler']}, seed {described['seed']}; scheduler: {described['scheduler']}{by}",
    ]
    if described["example"]:
        lines.append("one draw:")
        lines += [f"  {key}: {_short(value)}" for key, value in described["example"].items()]
    return lines


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
