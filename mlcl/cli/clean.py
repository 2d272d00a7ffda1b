"""`mlcl clean`: removes from a home what can be computed again or is not needed any more."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import answer_to, print_json
from mlcl.errors import printable

if TYPE_CHECKING:
    from mlcl.data.cache_entries import CacheEntry

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def clean(dry_run: DryRun = False, yes: Yes = False, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """Remove the cache, and checkpoints of ended trainings. Results, models and reports stay."""
    from mlcl.data.cache_entries import CacheEntry, cache_entries
    from mlcl.service.engine.checkpoints import left_checkpoints

    left = [
        CacheEntry(file, "checkpoint", f"checkpoint of a training that is {state}", file.stat().st_size)
        for file, state in left_checkpoints(home)
    ]
    remove([*cache_entries(home), *left], dry_run=dry_run, ask=not yes, as_json=json)


def remove(found: Sequence[CacheEntry], *, dry_run: bool, ask: bool, as_json: bool) -> None:
    """Says what would be removed, asks where `ask` and a person is there, and removes it."""
    from mlcl.data.cache_entries import remove_entry

    if not as_json:
        for entry in found:
            typer.echo(printable(f"{entry.bytes / 1e6:10,.1f} MB  {entry.path}  {entry.about}".rstrip()))
        asks = ask and found and not dry_run and sys.stdin.isatty()
        if asks and answer_to(f"remove {_size(found)}? [y/N]", "--yes").lower() not in ("y", "yes"):
            return
    removed = [entry for entry in found if dry_run or remove_entry(entry)]
    if as_json:
        listed = [asdict(entry) | {"removed": not dry_run and entry in removed} for entry in found]
        print_json({"bytes": sum(entry.bytes for entry in removed), "entries": listed})
        return
    kept = f"; {len(found) - len(removed)} in use: kept" if len(removed) < len(found) else ""
    typer.echo(f"{'would remove' if dry_run else 'removed'} {_size(removed)}{kept}")


def _size(entries: Sequence[CacheEntry]) -> str:
    megabytes = sum(entry.bytes for entry in entries) / 1e6
    return f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}, {megabytes:,.1f} MB"
