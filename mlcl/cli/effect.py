"""`mlcl effect`: how a sweep's score depends on a key, from its complete trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mlcl.cli.completion import local_names, trial_keys
from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import Column, fitted_table, print_json, results, tell
from mlcl.config import flatten, parse_override
from mlcl.errors import UserError, did_you_mean
from mlcl.tracking import State

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from mlcl.results.sweep_result import TrainingResult

ROWS = 9
"""Values of the key that are printed."""
BARS = "▏" + 16 * "█"
"""The bar of the largest expected score."""
SCORE = "score"
WIDE_RANGE = 10.0
"""The ratio of largest and smallest value from which on a key is taken by its logarithm."""


def effect(
    sweep: Annotated[str, typer.Argument(help="A sweep of `mlcl list`.", autocompletion=local_names)],
    key: Annotated[
        str,
        typer.Argument(help="A key that varies, or its end: section.temperature.", autocompletion=trial_keys),
    ],
    at: Annotated[
        list[str] | None, typer.Option("--at", help="KEY=VALUE of another key, held there.")
    ] = None,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """The score expected over a key: a Gaussian process through the complete trials."""
    from mlcl.cli.local_runs import local_run
    from mlcl.results.documents import local_sweep

    its = local_run(home, sweep)
    if its.kind != "sweep":
        raise UserError("is no sweep", key="SWEEP", found=its.name)
    found = local_sweep(its.folder)
    score, mode = found.score, found.mode
    frame = _frame([each for each in found.trials if each.state is State.COMPLETE])
    own, *_ = names = [_key(key, frame)]
    fixed = dict[str, float]()
    for name, value in (parse_override(text) for text in at or []):
        fixed[_key(name, frame)] = float(value)
    names += [name for name in fixed if name != own]
    curve, count = _curve(frame, names, fixed)
    best = curve.sort_values("expected", ascending=mode == "min").iloc[0]
    if json:
        rows = curve.to_dict("records")
        print_json({"key": own, "at": fixed, "score": score, "mode": mode, "trials": count, "curve": rows})
        return
    where = "".join(f", at {name} {value:g}" for name, value in fixed.items())
    results.print(_table(curve, own, f"{score} ({mode}) over {own}{where}; {count} complete trials"))
    tell(f"best near {own} {best['value']:.4g}: {best['expected']:.4f} ± {best['deviation']:.4f}")


def _frame(trials: Sequence[TrainingResult]) -> pd.DataFrame:
    """A row for each trial with a score: the numbers among its settings that vary, and SCORE."""
    import pandas as pd

    rows = [
        {
            key: float(value)
            for key, value in flatten({**each.settings, **each.chosen}).items()
            if _is_number(value)
        }
        | {SCORE: each.score}
        for each in trials
        if each.score is not None
    ]
    frame = pd.DataFrame(rows)
    return frame[[str(name) for name in frame if name == SCORE or frame[str(name)].nunique() > 1]]


def _curve(frame: pd.DataFrame, names: list[str], fixed: Mapping[str, float]) -> tuple[pd.DataFrame, int]:
    """The expected score over the first of the keys, the others held. Raises UserError for few trials."""
    import numpy as np
    import pandas as pd

    from mlcl.results.gaussian_process import FEWEST, expected_scores

    known = frame[[*names, SCORE]].dropna()
    if len(known) < FEWEST:
        raise UserError("too few complete trials", key="SWEEP", found=len(known), allowed=f"{FEWEST} or more")
    x_ND = known[names].to_numpy(float)
    log = [bool(x.min() > 0 and x.max() / x.min() >= WIDE_RANGE) for x in x_ND.T]
    ends = x_ND[:, 0].min(), x_ND[:, 0].max()
    grid = np.geomspace(*ends, ROWS) if log[0] else np.linspace(*ends, ROWS)
    at_GD = np.column_stack([grid, *(np.full(ROWS, fixed[name]) for name in names[1:])])
    mean, deviation = expected_scores(x_ND, known[SCORE], at_GD, log=log)
    return pd.DataFrame({"value": grid, "expected": mean, "deviation": deviation}), len(known)


def _table(curve: pd.DataFrame, key: str, title: str) -> Table:
    low, high = curve["expected"].min(), curve["expected"].max()
    heights = [round((len(BARS) - 1) * (its - low) / ((high - low) or 1.0)) for its in curve["expected"]]
    columns = [
        Column(key, [f"{value:.4g}" for value in curve["value"]]),
        Column("expected", [f"{value:.4f}" for value in curve["expected"]]),
        Column("± sd", [f"{value:.4f}" for value in curve["deviation"]], rank=1),
        Column("", [BARS[: height + 1] for height in heights], rank=2, texts=True),
    ]
    return fitted_table(columns, title)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _key(word: str, frame: pd.DataFrame) -> str:
    """The whole key that ends so. Raises UserError for none and for several."""
    known = [str(name) for name in frame if name != SCORE]
    found = [key for key in known if key == word or key.endswith(f".{word}")]
    if len(found) != 1:
        hint = did_you_mean(word, known) if not found else "; ends several keys"
        raise UserError(
            f"is no number that varies{hint}", key="KEY", found=word, allowed=sorted(found or known)
        )
    return found[0]
