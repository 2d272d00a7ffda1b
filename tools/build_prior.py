"""Builds a prior, the settings that a search tries first, from the trials of tables.

    python tools/build_prior.py --out FILE --metric val/accuracy [--points 4] [--without DATA_SET] TRIALS...

TRIALS are Parquet files of `mlcl reproduce --figures`.

For each data set (a column), a random forest predicts the classifier's metric on validation from settings and
method (a row). The candidates are the settings of all trials. Points are chosen greedily: the next point is
the candidate that brings the best of the points closest to the best candidate, in the mean over data sets and
methods. The values of several heads are replaced by their geometric mean, under the key `objective.heads.*`.
--without leaves a data set out and prints how far the points are from its best candidate by its own forest.
"""

from __future__ import annotations

import argparse
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor

from mlcl.results.table_trials import read_trials

HEADS, NEIGHBOURS = "objective.heads.", "evaluation."
APART = ("asl", "knn", "supcon and global (MLCL)")
"""The methods whose classifier, temperatures or weights have other keys or ranges."""
TREES, DIGITS = 300, 3
Array = NDArray[np.float64]


def setting_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a trial's settings with one value for all heads, without those chosen after training."""
    setting: dict[str, Any] = {}
    head_values: dict[str, list[float]] = {}
    for key, value in settings.items():
        if key.startswith(HEADS):
            head_values.setdefault(f"{HEADS}*.{key.rpartition('.')[2]}", []).append(value)
        elif not key.startswith(NEIGHBOURS):
            setting[key] = value
    return setting | {key: math.exp(np.mean(np.log(values))) for key, values in head_values.items()}


def read_all(files: Sequence[Path], metric: str) -> pd.DataFrame:
    """Returns the completed trials of the search, with the columns `column`, `row`, `score` and `setting`.

    `score` is the value of `metric`, and `setting` has one value for all heads. Raises SystemExit if a file
    has a trial without the metric.
    """
    frames = []
    for file in files:
        trials = read_trials(file)
        trials = trials[(trials.stage == "search") & (trials.state == "COMPLETE") & ~trials.row.isin(APART)]
        scores = [metrics.get(metric) for metrics in trials.metrics]
        if None in scores:
            raise SystemExit(f"{file}: {scores.count(None)} of {len(scores)} trials have no {metric}")
        settings = [setting_of(trial_settings) for trial_settings in trials.settings]
        frames.append(trials.assign(score=scores, setting=settings))
    return pd.concat(frames)


def encoded(settings: Sequence[Mapping[str, Any]], keys: Sequence[str], methods: Array) -> Array:
    """Returns settings as numbers for a forest: logarithms of positive floats, codes of names, else NaN."""

    def number(value: Any) -> float:
        if isinstance(value, float) and value > 0:
            return math.log(value)
        if isinstance(value, str):
            return float(zlib.crc32(value.encode()))  # a tree can split a few names in any order
        return math.nan if value is None else float(value)

    columns = [[number(setting.get(key)) for key in keys] for setting in settings]
    return np.column_stack([np.array(columns), methods])


def predicted(trials: pd.DataFrame, candidates: Sequence[Mapping[str, Any]]) -> Array:
    """Returns the distances [method, candidate] of a forest's predicted scores from the best of them."""
    keys = sorted({key for setting in trials.setting for key in setting})
    methods = sorted(set(trials.row))
    method_numbers = trials.row.map({name: float(n) for n, name in enumerate(methods)}).to_numpy()
    forest = RandomForestRegressor(TREES, min_samples_leaf=2, random_state=0)
    forest.fit(encoded(list(trials.setting), keys, method_numbers), trials.score.to_numpy())
    scores = []
    for number, name in enumerate(methods):
        method_keys = {key for setting in trials.setting[trials.row == name] for key in setting}
        method_settings = [
            {key: candidate[key] for key in method_keys if key in candidate} for candidate in candidates
        ]
        scores.append(
            forest.predict(encoded(method_settings, keys, np.full(len(method_settings), float(number))))
        )
    return np.array([row.max() - row for row in scores])


def portfolio(distances: Sequence[Array], count: int) -> list[int]:
    """Returns the candidates that are chosen in turn, from distances [method, candidate] of each data set."""
    picks: list[int] = []
    for _ in range(count):
        means = [
            math.inf
            if candidate in picks
            else np.mean([set_distances[:, [*picks, candidate]].min(1).mean() for set_distances in distances])
            for candidate in range(distances[0].shape[1])
        ]
        picks.append(int(np.argmin(means)))
    return picks


def rounded(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the setting with floats of three significant digits."""
    return {
        key: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
        for key, value in sorted(setting.items())
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trials", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--metric", required=True, help="what is better where it is higher")
    parser.add_argument("--points", type=int, default=4)
    parser.add_argument("--without", help="a data set, as its column is called")
    args = parser.parse_args()
    trials = read_all(args.trials, args.metric)
    sets = sorted(set(trials.column) - {args.without})
    set_trials = trials[trials.column.isin(sets)]
    candidates = list({repr(rounded(setting)): setting for setting in set_trials.setting}.values())
    picks = portfolio(
        [predicted(set_trials[set_trials.column == name], candidates) for name in sets], args.points
    )
    points = [rounded(candidates[pick]) for pick in picks]
    about = f"Trials of {', '.join(sets)} ({len(set_trials)}); built by tools/build_prior.py."
    args.out.write_text(yaml.safe_dump({"about": about, "points": points}, sort_keys=False))
    print(args.out.read_text())
    if args.without is not None:
        set_distances = predicted(trials[trials.column == args.without], [*candidates, *points])
        best = set_distances[:, len(candidates) :].min(1)
        print(
            f"{args.without}: {best.mean():.4f} from the best candidate by its forest, "
            f"{best.max():.4f} at most"
        )


if __name__ == "__main__":
    main()
