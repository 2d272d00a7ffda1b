"""`mlcl doctor`, `mlcl clean` and `mlcl import`: repair, clean up and merge homes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import Exit, answer, answer_to, errors, print_json, results, say
from mlcl.errors import UserError, escape_unprintable
from mlcl.markup import format_count

if TYPE_CHECKING:
    from mlcl.data.cache_entries import CacheEntry

STYLE = {"FOUND": "yellow", "MENDED": "green", "LEFT": "red", "NOTE": "dim"}
"""The styles of findings, keyed by their status."""
Fix = Annotated[bool, typer.Option("--fix", help="Mend what can be mended. Without it nothing is changed.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def doctor(fix: Fix = False, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """Find remains of crashes and problems that keep commands from working; --fix mends them."""
    from mlcl.service.doctor import CHECKS, Scope, is_healthy, run_checks
    from mlcl.tracking import tracking_uri

    with errors.status("looking"):
        outcomes = run_checks(Scope(home, tracking_uri(home), say), CHECKS, fix=fix)
    all_healthy = is_healthy(outcomes)
    if json:
        findings = [asdict(result) for result in outcomes]
        print_json(
            {"home": home, "healthy": all_healthy, "fix": fix, "checks": list(CHECKS), "findings": findings}
        )
        raise typer.Exit(Exit.DONE if all_healthy else Exit.FAILED)
    for outcome in outcomes:
        text = Text(f"{outcome.status:<7}", style=STYLE[outcome.status])
        text.append(f"{outcome.check}: {outcome.what}\n       {outcome.why}", style="default")
        if outcome.status in ("FOUND", "LEFT"):
            text.append(
                f"\n       {'--fix' if outcome.mendable else 'by hand'}: {outcome.cure}", style="default"
            )
        results.print(text, soft_wrap=True)
    counts = {
        status: sum(outcome.status == status for outcome in outcomes) for status in STYLE if status != "NOTE"
    }
    summary = ", ".join(f"{count} {status.lower()}" for status, count in counts.items() if count)
    mendable_count = sum(outcome.status == "FOUND" and outcome.mendable for outcome in outcomes)
    typer.echo(
        (summary or "healthy") + (f"; mlcl doctor --fix mends {mendable_count}" if mendable_count else "")
    )
    raise typer.Exit(Exit.DONE if all_healthy else Exit.FAILED)


def clean(dry_run: DryRun = False, yes: Yes = False, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """Remove the cache, and checkpoints of ended trainings. Results, models and reports stay."""
    from mlcl.data.cache_entries import CacheEntry, cache_entries
    from mlcl.service.engine.closing import find_checkpoints

    checkpoints = [
        CacheEntry(file, "checkpoint", f"checkpoint of a training that is {state}", file.stat().st_size)
        for file, state in find_checkpoints(home)
    ]
    remove([*cache_entries(home), *checkpoints], dry_run=dry_run, ask=not yes, as_json=json)


def remove(cache_entries: Sequence[CacheEntry], *, dry_run: bool, ask: bool, as_json: bool) -> None:
    """Lists cache entries and, without `dry_run`, removes them. `ask` asks for confirmation on a terminal."""
    from mlcl.data.cache_entries import remove_entry

    if not as_json:
        for entry in cache_entries:
            typer.echo(
                escape_unprintable(f"{entry.bytes / 1e6:10,.1f} MB  {entry.path}  {entry.about}".rstrip())
            )
        must_ask = ask and cache_entries and not dry_run and sys.stdin.isatty()
        if must_ask and answer_to(f"remove {_format_size(cache_entries)}? [y/N]").lower() not in ("y", "yes"):
            return
    removed_entries = [entry for entry in cache_entries if dry_run or remove_entry(entry)]
    if as_json:
        trees = [
            asdict(entry) | {"removed": not dry_run and entry in removed_entries} for entry in cache_entries
        ]
        print_json({"bytes": sum(entry.bytes for entry in removed_entries), "entries": trees})
        return
    note = (
        f"; {len(cache_entries) - len(removed_entries)} in use: kept"
        if len(removed_entries) < len(cache_entries)
        else ""
    )
    typer.echo(f"{'would remove' if dry_run else 'removed'} {_format_size(removed_entries)}{note}")


def _format_size(entries: Sequence[CacheEntry]) -> str:
    megabytes = sum(entry.bytes for entry in entries) / 1e6
    return f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}, {megabytes:,.1f} MB"


def import_home(
    source: Annotated[Path, typer.Argument(metavar="HOME", help="The home of other commands.")],
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Copy the complete runs, sweeps and tables of another home, so that tables do not train them again."""
    from mlcl.service.import_home import import_home as copy
    from mlcl.tracking import tracking_uri
    from mlcl.tracking.cursor import undelivered_logs
    from mlcl.tracking.delivery import deliver_all

    records = copy(source, home, say)
    undelivered = len(undelivered_logs(home))
    if undelivered:
        try:
            undelivered = deliver_all(home, tracking_uri(home), say)
        except UserError as error:  # the store cannot be reached
            say(error.line())
    tree = {"from": source, "copied": [asdict(record) for record in records]}
    lines = [f"{record.kind.removesuffix('s')} {record.name or record.id}" for record in records]
    summary = f"{len(records)} copied from {source}; the rest is here already, or is not complete"
    notes = (
        [f"{format_count(undelivered, 'log')} not in MLflow yet: mlcl doctor --fix"] if undelivered else []
    )
    answer({**tree, "undelivered": undelivered}, *lines, summary, *notes, as_json=json)
