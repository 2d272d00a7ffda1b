"""`mlcl data`: prepare, check and describe data sets, and empty their cache."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from mlcl.cli import plugins
from mlcl.cli.clean import DryRun, Yes, remove
from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import print_json, results
from mlcl.config import apply_overrides, parse_override
from mlcl.errors import printable

app = typer.Typer(help="Prepare, check and describe data sets.", no_args_is_help=True)

Place = Annotated[str, typer.Argument(help="Folder or URI of a prepared data set.")]


@app.command()
def sources(name: plugins.Name = None, json: Json = False) -> None:
    """List the sources and what they need."""
    from mlcl.data import SOURCES

    if name is not None:
        plugins.show("sources", name, as_json=json)
        return
    listed = sorted(SOURCES.values(), key=lambda source: source.needs_input)
    if json:
        print_json({s.name: {"title": s.title, "licence": s.licence, "needs": _needs(s)} for s in listed})
        return
    table = Table("name", "what", "licence", "needs")
    for source in listed:
        table.add_row(source.name, source.title, source.licence, _needs(source))
    results.print(table)


def _needs(source: Any) -> str:
    if not source.needs_input:
        return "nothing"
    required = source.options.model_fields["path"].is_required()
    return "--from PATH" if required else "--from PATH, or the network"


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="A source, see `mlcl data sources`.")],
    options: Annotated[list[str] | None, typer.Argument(help="key=value, the source's options.")] = None,
    from_: Annotated[Path | None, typer.Option("--from", help="The file or folder to read.")] = None,
    split_seed: Annotated[int, typer.Option("--split-seed", min=0, help="Seed of the split.")] = 0,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Prepare a data set from a source; a second call finds it done."""
    from mlcl.data import Dataset
    from mlcl.data import prepare as prepare_source

    settings = apply_overrides({}, dict(parse_override(text) for text in options or []))
    if from_ is not None:
        settings["path"] = str(from_)
    folder = prepare_source(name, home / "data", settings, split_seed)
    info = Dataset.open(folder).info
    if json:
        print_json({"path": folder, "fingerprint": info.fingerprint, "rows": dict(info.rows)})
        return
    rows = ", ".join(f"{split} {count:,}" for split, count in info.rows.items())
    typer.echo(f"{folder}\n{rows}; fingerprint {info.fingerprint}")


@app.command()
def check(
    path: Place,
    allow_untrained: Annotated[
        bool, typer.Option("--allow-untrained", help="Accept labels that only the test split has.")
    ] = False,
    json: Json = False,
) -> None:
    """Check every row: hashes, ids, splits, labels, texts, images. Names the first bad row."""
    from mlcl.data.validation import check as check_data

    report = check_data(path, allow_untrained)
    if json:
        print_json(asdict(report))
        return
    rows = ", ".join(f"{split} {count:,}" for split, count in report.rows.items())
    typer.echo(printable(f"{report.name} is sound: {rows} rows in {report.shards} shards"))
    for warning in report.warnings:
        typer.echo(printable(f"note: {warning}"))


@app.command()
def describe(path: Place, json: Json = False) -> None:
    """Rows, labels, imbalance and lengths of a data set."""
    from mlcl.data.description import describe as describe_data

    description = describe_data(path)
    if json:
        print_json(asdict(description))
        return
    rows = ", ".join(f"{split} {count:,}" for split, count in description.rows.items())
    typer.echo(printable(f"{description.name} ({description.modality}): {rows}"))
    typer.echo(printable(f"{description.source}; {description.licence}"))
    table = Table(
        "label space", "kind", "classes", "labels a row", "imbalance", "missing", "unused", "most frequent"
    )
    for name, label in description.labels.items():
        frequent = ", ".join(f"{key} {count}" for key, count in label.most_frequent.items())
        table.add_row(
            name, label.kind, str(label.classes), f"{label.cardinality:.2f}", f"{label.imbalance:.1f}",
            str(label.missing), str(label.unused), escape(printable(frequent)),
        )  # fmt: skip
    results.print(table)
    for name, levels in description.hierarchies.items():
        typer.echo(f"{name}: {' > '.join(levels)}")
    typer.echo(", ".join(f"{key} {value:g}" for key, value in description.content.items()))


@app.command()
def clean(dry_run: DryRun = False, yes: Yes = False, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """Remove the cache: token ids, decoded images, frozen inputs. They are computed again when needed."""
    from mlcl.data.cache_entries import cache_entries

    remove(cache_entries(home), dry_run=dry_run, ask=not yes, as_json=json)
