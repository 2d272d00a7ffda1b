"""`mlcl space`: shows the parameters and the search of a space file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from mlcl.cli.options import Json, Overrides
from mlcl.cli.output import answer, boxed_table
from mlcl.config import load_job, load_space

VALUES_SHOWN = 10
"""The largest number of values of a post-hoc key that are listed. Of more, only the ends are shown."""
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
    """Check a space against a job; show its parameters, its search and one random draw."""
    config = load_job(job, overrides or [])
    space_config = load_space(space, config)

    from mlcl.service.search.sampling import describe as describe_space

    description = describe_space(space_config, config)
    tables, heads = [], ("parameter", "kind", "values", "scale", "when")
    if description["parameters"]:
        rows = [
            ("\n".join(row["keys"]) if row["kind"] == "simplex" else row["name"], row["kind"],
             _format_values(row), row.get("scale", ""), row["when"] or "")
            for row in description["parameters"]
        ]  # fmt: skip
        tables.append(boxed_table(heads, rows, str(space), fold=True))
    if description["posthoc"]:
        tables.append(_posthoc_table(description["posthoc"]))
    tree = {"space": str(space), "job": str(job), **description}
    answer(tree, *tables, *_summary_lines(description), as_json=json)


def _format_values(parameter: Mapping[str, Any]) -> str:
    if parameter["kind"] == "choice":
        return ", ".join(map(str, parameter["values"]))
    low, high = parameter["low"], parameter["high"]
    text = f"{low:g} to {high:g}" if low < high else f"{low:g}"
    return f"{parameter['weights']} weights, total {text}" if parameter["kind"] == "simplex" else text


def _posthoc_table(posthoc: Mapping[str, Any]) -> Table:
    rows = []
    for key, values in posthoc["grid"].items():
        origin = "" if key in posthoc["varied"] else " (the job's grid)"
        is_long = len(values) > VALUES_SHOWN
        ends = [values[0], values[-1]] if is_long else values
        text = (" ... " if is_long else ", ").join(f"{value:g}" for value in ends)
        rows.append((f"evaluation.knn.{key}{origin}", str(len(values)), text))
    title = f"scored after training, {posthoc['settings']:,} settings a trial"
    return boxed_table(("key", "points", "values"), rows, title, right=("points",), fold=True)


def _summary_lines(tree: Mapping[str, Any]) -> list[str]:
    goals = ", ".join(f"{goal['metric']} ({goal['mode']})" for goal in tree["goals"])
    suffix = f" by {tree['prune_by']}" if tree["prune_by"] else ""
    combinations = tree["combinations"]
    lines = [
        f"combinations: {combinations if isinstance(combinations, str) else f'{combinations:,}'}",
        f"goal: {goals}",
        f"sampler: {tree['sampler']}, seed {tree['seed']}; scheduler: {tree['scheduler']}{suffix}",
    ]
    if tree["example"]:
        lines.append("one draw:")
        lines += [f"  {key}: {_format_value(value)}" for key, value in tree["example"].items()]
    return lines


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_format_value, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
