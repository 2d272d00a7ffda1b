"""`mlcl data`: prepare, check and describe data sets, and empty their cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from mlcl.cli import plugins
from mlcl.cli.init import AllowUntrained
from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import answer, boxed_table
from mlcl.cli.upkeep import DryRun, Yes, remove
from mlcl.config import apply_overrides, parse_override
from mlcl.errors import escape_unprintable
from mlcl.markup import format_count

app = typer.Typer(help="Prepare, check and describe data sets.", no_args_is_help=True)

Place = Annotated[str, typer.Argument(help="Folder or URI of a prepared data set.")]


@app.command()
def sources(name: plugins.Name = None, json: Json = False) -> None:
    """List the sources and what they need."""
    from mlcl.data import SOURCES

    if name is not None:
        plugins.show("sources", name, as_json=json)
        return
    declarations = sorted(SOURCES.values(), key=lambda source: source.needs_input)
    tree = {
        source.name: {"title": source.title, "licence": source.licence, "needs": _required_input(source)}
        for source in declarations
    }
    rows = ((name, *entry.values()) for name, entry in tree.items())
    answer(tree, boxed_table(("name", "what", "licence", "needs"), rows), as_json=json)


def _required_input(source: Any) -> str:
    if not source.needs_input:
        return "nothing"
    required = source.options.model_fields["path"].is_required()
    return "--from PATH" if required else "--from PATH, or the network"


class _SourceHelp(typer.core.TyperCommand):
    """A command whose help includes the options of the source that the command line names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Stores the arguments before they are parsed, since `--help` is handled while they are parsed."""
        ctx.meta["line"] = list(args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from mlcl.data import SOURCES

        super().format_help(ctx, formatter)
        for name in [word for word in ctx.meta["line"] if word in SOURCES][:1]:
            plugins.options_table(f"Options of {name}, as key=value", SOURCES[name].options)


@app.command(cls=_SourceHelp)
def prepare(
    name: Annotated[str, typer.Argument(help="A source, see `mlcl data sources`.")],
    options: Annotated[list[str] | None, typer.Argument(help="key=value, the source's options.")] = None,
    from_: Annotated[
        list[Path] | None, typer.Option("--from", help="What to read; of a table several files, one each.")
    ] = None,
    split_seed: Annotated[int, typer.Option("--split-seed", min=0, help="Seed of the split.")] = 0,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Prepare a data set from a source; a second call finds it done. SOURCE --help lists its options."""
    from mlcl.data import Dataset
    from mlcl.data import prepare as prepare_source

    settings = apply_overrides({}, dict(parse_override(text) for text in options or []))
    if from_:
        settings["path"] = str(from_[0]) if len(from_) == 1 else list(map(str, from_))
    folder = prepare_source(name, home / "data", settings, split_seed)
    info = Dataset.open(folder).info
    tree = {"path": folder, "fingerprint": info.fingerprint, "rows": dict(info.rows), "notes": info.notes}
    text = f"{folder}\n{_format_counts(info.rows)}; fingerprint {info.fingerprint}"
    answer(tree, text, *_format_notes(info.notes), as_json=json)


@app.command()
def check(
    path: Place,
    allow_untrained: AllowUntrained = False,
    json: Json = False,
) -> None:
    """Check every row of a data set: hashes, ids, splits, labels, texts, images. Names the first bad row."""
    from mlcl.data.validation import check as check_data

    report = check_data(path, allow_untrained)
    shards = format_count(report.shards, "shard")
    text = f"{report.name} is sound: {_format_counts(report.rows)} rows in {shards}"
    answer(asdict(report), escape_unprintable(text), *_format_notes(report.warnings), as_json=json)


def _format_counts(rows: Mapping[Any, int]) -> str:
    return ", ".join(f"{split} {count:,}" for split, count in rows.items())


def _format_notes(notes: Iterable[str]) -> list[str]:
    return [escape_unprintable(f"note: {note}") for note in notes]


@app.command()
def describe(path: Place, json: Json = False) -> None:
    """Describe a data set: rows, labels, imbalance and sizes of texts, images or vectors."""
    from mlcl.data.description import describe as describe_data
    from mlcl.data.description import in_words

    description = describe_data(path)
    answer(asdict(description), *map(escape_unprintable, in_words(description)), as_json=json)


@app.command()
def clean(dry_run: DryRun = False, yes: Yes = False, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """Remove the cache: token ids, decoded images, frozen inputs. They are computed again when needed."""
    from mlcl.data.cache_entries import cache_entries

    remove(cache_entries(home), dry_run=dry_run, ask=not yes, as_json=json)
