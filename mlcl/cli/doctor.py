"""`mlcl doctor`: what crashes left behind, and what keeps commands from working."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import Exit, errors, print_json, results, say

if TYPE_CHECKING:
    from mlcl.service.doctor import Result

STYLE = {"FOUND": "yellow", "MENDED": "green", "LEFT": "red", "NOTE": "dim"}

Fix = Annotated[bool, typer.Option("--fix", help="Mend what can be mended. Without it nothing is changed.")]


def doctor(fix: Fix = False, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """Find what a crash left behind and what keeps commands from working; mend it with --fix."""
    from mlcl.service.doctor import CHECKS, Scope, healthy, run_checks
    from mlcl.tracking import tracking_uri

    scope = Scope(home, tracking_uri(home), say)
    with errors.status("looking"):
        found = run_checks(scope, CHECKS, fix=fix)
    well = healthy(found)
    if json:
        findings = [asdict(result) for result in found]
        print_json({"home": home, "healthy": well, "fix": fix, "checks": list(CHECKS), "findings": findings})
    else:
        for result in found:
            results.print(_lines(result), soft_wrap=True)
        typer.echo(_summary(found))
    raise typer.Exit(Exit.DONE if well else Exit.FAILED)


def _lines(result: Result) -> Text:
    """The problem and its reason, then what `--fix` does or a person has to do."""
    text = Text(f"{result.status:<7}", style=STYLE[result.status])
    text.append(f"{result.check}: {result.what}", style="default")
    text.append(f"\n       {result.why}", style="default")
    if result.status in ("FOUND", "LEFT"):
        by = "--fix" if result.mendable else "by hand"
        text.append(f"\n       {by}: {result.cure}", style="default")
    return text


def _summary(found: Sequence[Result]) -> str:
    counts = {status: sum(result.status == status for result in found) for status in STYLE}
    said = [f"{count} {status.lower()}" for status, count in counts.items() if count and status != "NOTE"]
    mendable = sum(result.status == "FOUND" and result.mendable for result in found)
    hint = f"; mlcl doctor --fix mends {mendable}" if mendable else ""
    return (", ".join(said) or "healthy") + hint
