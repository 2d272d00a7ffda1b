"""The score over the weights of heads and classifier, as points in a triangle."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from mlcl.report.plots.plot import Plot, PlotSkipped
from mlcl.report.plots.trials import best_number, head_key, pruned_trials, require_complete
from mlcl.report.plots.triangle import Triangle, draw_triangle
from mlcl.report.sweep_data import SweepData
from mlcl.tracking.names import CLASSIFIER_WEIGHT

_OTHERS = "others"


def ternary_plot(data: SweepData) -> Plot:
    """The score over the weights. Raises PlotSkipped where there are not three or more that vary."""
    require_complete(data)
    complete, early = (shares_of(frame) for frame in (data.complete, pruned_trials(data)))
    parts = three_parts(pd.concat([complete, early]))
    triangle = Triangle(
        parts=(parts[0], parts[1], parts[2]),
        shares=_folded(complete, parts).to_numpy(float),
        score=data.complete["score"].tolist(),
        score_name=data.score,
        mode=data.mode,
        best=data.complete["number"].tolist().index(best_number(data)),
        early=_folded(early, parts).to_numpy(float),
    )
    others = [str(name) for name in complete if name not in parts]
    lumped = f" {_OTHERS.capitalize()}: {', '.join(others)}." if others else ""
    return Plot(
        "ternary",
        f"{data.score} by the shares of the loss",
        f"Each corner is a loss of that part alone.{lumped}",
        _table(data, complete, early),
        partial(draw_triangle, triangle),
    )


def shares_of(frame: pd.DataFrame) -> pd.DataFrame:
    """The weight of each head and of the classifier. Raises PlotSkipped where they do not add up to 1."""
    heads = {head: frame[key] for key in frame.columns if (head := head_key(key, "weight"))}
    if CLASSIFIER_WEIGHT not in frame or not heads:
        raise PlotSkipped("there are no weights of heads and classifier")
    shares = pd.DataFrame({**heads, "classifier": frame[CLASSIFIER_WEIGHT]}).astype(float).fillna(0.0)
    if not np.allclose(shares.sum(axis=1), 1.0, atol=1e-6):
        raise PlotSkipped("the weights of heads and classifier do not add up to 1")
    return shares


def three_parts(shares: pd.DataFrame) -> tuple[str, ...]:
    """The names of the parts: of more than three, the two that vary most and the rest. Raises PlotSkipped."""
    if (shares.nunique() < 2).all():
        raise PlotSkipped("the weights are the same in all trials")
    if shares.shape[1] < 3:
        raise PlotSkipped("two weights that add up to 1 are one number: the gamma curve shows it")
    if shares.shape[1] == 3:
        return tuple(shares.columns)
    spread = shares.std().sort_values(ascending=False, kind="stable")
    return (*spread.index[:2], _OTHERS)


def _folded(shares: pd.DataFrame, parts: tuple[str, ...]) -> pd.DataFrame:
    """The shares of the three parts."""
    if _OTHERS not in parts:
        return shares
    kept = shares[list(parts[:2])]
    return kept.assign(**{_OTHERS: 1 - kept.sum(axis=1)})


def _table(data: SweepData, complete: pd.DataFrame, early: pd.DataFrame) -> pd.DataFrame:
    shares = pd.concat([complete, early]).sort_index()
    trials = data.search.loc[shares.index, ["number", "state", "score"]].rename(columns={"number": "trial"})
    return trials.join(shares)
