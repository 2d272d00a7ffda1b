"""`mlcl posthoc`: every (k, lambda, tau) of finished runs, without training."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from mlcl.cli.compare import What
from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import print_json, results
from mlcl.errors import UserError
from mlcl.files import replace_text

if TYPE_CHECKING:
    from mlcl.results.posthoc import PosthocScores


def posthoc(
    what: What,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write every point to this file.")] = None,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Score every k, lambda and tau of the neighbours from one retrieval; choose on validation."""
    from mlcl.results.posthoc import score_posthoc
    from mlcl.results.runs import Runs
    from mlcl.results.settings import find_settings
    from mlcl.tracking import Tracker

    if csv is not None:
        _check_file(csv)
    runs = Runs(Tracker.existing(home))
    found = score_posthoc(runs, find_settings(runs, what), home)
    if csv is not None:
        replace_text(csv, found.points.to_csv(index=False))
    if json:
        rows = found.chosen.astype(object).where(found.chosen.notna(), None)
        print_json({"metric": found.metric, "chosen": rows.to_dict("records")})
    else:
        results.print(_table(found))


def _check_file(file: Path) -> None:
    """Raises UserError where the file cannot be written, before the work starts."""
    if file.exists() and not file.is_file():
        raise UserError("is no file", file=file, key="--csv")
    try:
        TemporaryFile(dir=file.parent).close()
    except OSError as error:
        raise UserError("cannot be written", file=file, key="--csv", found=error) from None


def _table(found: PosthocScores) -> Table:
    title = f"{found.metric} with neighbours: mean over the seeds; chosen on validation"
    table = Table(title=Text(title), title_justify="left")
    for head in ("setting", "seeds", "which", "k", "lambda", "tau", "threshold", "validation", "test"):
        table.add_column(head, justify="left" if head in ("setting", "which") else "right")
    for row in found.chosen.itertuples(index=False):
        setting, seeds, which, k, share, tau, threshold, *figures = row
        cells = [str(setting), str(seeds), str(which), f"{k:g}", f"{share:g}", f"{tau:g}"]
        cells.append("" if threshold != threshold else f"{threshold:.3g}")
        table.add_row(*map(Text, [*cells, _figure(*figures[:2]), _figure(*figures[2:])]))
    return table


def _figure(mean: float, spread: float) -> str:
    if mean != mean:
        return ""
    return f"{mean:.4f}" + ("" if spread != spread else f" ± {spread:.4f}")
