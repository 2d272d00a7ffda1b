"""Measures the share of a search's lead that fresh seeds keep, and how often the pick is below the given job.

    python benchmarks/kept_lead.py [TRIALS...] [--repeats 1000]

TRIALS are Parquet files of `mlcl reproduce --figures`, by default those of the leaderboard.

The true values of settings are drawn from a cell's scores, less the median of their search, shrunk to the
variance that remains without noise. The noise is the standard deviation of a pick's score between its
confirmation seeds. A search sees each value with noise; its best ENTRANTS are trained on SEEDS fresh seeds,
and the one with the best mean is the pick. The lead is the best score less the median score, and its kept
part is the pick's true value less the same median. Printed are the ratio of the sums over cells, and the
median cell's ratio. A perfect race, which picks the best true value, is the upper bound of both: the luck of
the best score is part of the lead.

The job as written is the first recorded trial of each search; it is a trial and also takes part in the race.
Printed is the share of picks whose true value is below the job's, and below it by more than .2 points. The
number of trainings counts those of a search and its race.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlcl.results.table_trials import read_trials

FIGURES = Path(__file__).parents[1] / "docs/leaderboard/figures/three-searches"
LEAST_TRIALS = 12
WORSE = 0.002
TRIALS = 4, 8, 18
RACES = (1, 0), (1, 2), (2, 1), (2, 2), (4, 2), (4, 3)
"""Pairs of entrants and fresh seeds; without fresh seeds the pick is the setting with the best score."""


class Cell(NamedTuple):
    """The true values of a cell's settings and of the job as written, and the standard deviation of a score.

    Values are differences from the median of their search.
    """

    values: NDArray[np.float64]
    noise: float
    written: float


def read_cells(trials: pd.DataFrame) -> Iterator[Cell]:
    """Yields the cells that have enough trials and a setting with several confirmation seeds."""
    complete_trials = trials[trials["state"] == "COMPLETE"]
    for _, cell in complete_trials.groupby(["column", "row"]):
        cell = cell.assign(settings=cell["settings"].map(str))
        search_trials, confirmation_trials = (
            cell[cell["stage"] == stage] for stage in ("search", "confirmation")
        )
        variances = confirmation_trials.groupby(["search", "settings"])["score"].var(ddof=1).dropna()
        if len(search_trials) >= LEAST_TRIALS and len(variances):
            scores = (
                search_trials["score"] - search_trials.groupby("search")["score"].transform("median")
            ).to_numpy()
            noise = float(np.sqrt(variances.mean()))
            spread = np.subtract(*np.percentile(scores, [75, 25])) / 1.349
            values = scores * np.sqrt(max(0.0, 1 - (noise / max(spread, 1e-12)) ** 2))
            yield Cell(values, noise, float(values[(search_trials["number"] == 0).to_numpy()].mean()))


def leads(
    cell: Cell, trials: int, entrants: int, seeds: float, repeats: int, random: np.random.Generator
) -> tuple[float, float, float, float]:
    """Returns the mean lead of the best score, the mean part of it that the pick keeps, and two shares.

    The shares are of picks that are worse than the job as written, and worse by more than `WORSE`.
    """
    values = random.choice(cell.values, (repeats, trials))
    values[:, 0] = cell.written
    scores = values + random.normal(0, cell.noise, values.shape)
    best = np.argsort(-scores, axis=1)[:, :entrants]
    is_extra = (best != 0).all(1)  # the job as written is not an entrant by its score
    best = np.hstack([best, np.zeros((repeats, 1), int)])
    race_scores = np.take_along_axis(values, best, 1)
    if seeds:
        race_scores = race_scores + random.normal(0, cell.noise / np.sqrt(seeds), race_scores.shape)
    race_scores[:, -1] = np.where(is_extra, race_scores[:, -1], -np.inf)
    pick = np.take_along_axis(best, race_scores.argmax(1)[:, None], 1) if seeds else best[:, :1]
    median = np.median(scores, axis=1)
    pick_values = np.take_along_axis(values, pick, 1)[:, 0]
    deficit = cell.written - pick_values
    lead, kept_part = scores.max(1) - median, pick_values - median
    return (
        float(lead.mean()),
        float(kept_part.mean()),
        float((deficit > 0).mean()),
        float((deficit > WORSE).mean()),
    )


def shares(cell_leads: Sequence[tuple[float, float, float, float]]) -> str:
    """Returns a line with the ratio of the sums, the median ratio, and the mean shares over the cells."""
    lead, kept_part, worse_share, far_worse_share = np.array(cell_leads).T
    text = f"{kept_part.sum() / lead.sum():.2f} (sums), {np.median(kept_part / lead):.2f} (median cell)"
    return (
        f"{text}; below the job as written {worse_share.mean():.3f}, "
        f"by more than .2 points {far_worse_share.mean():.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trials", nargs="*", type=Path, default=sorted(FIGURES.glob("*-trials.parquet")))
    parser.add_argument("--repeats", type=int, default=1000)
    args = parser.parse_args()
    cells = list(read_cells(pd.concat(map(read_trials, args.trials))))
    noise = 100 * np.median([cell.noise for cell in cells])
    print(f"{len(cells)} cells; median deviation of a score between seeds: {noise:.2f} points")
    for trials in TRIALS:
        for entrants, seeds in (*RACES, (trials, np.inf)):
            random = np.random.default_rng(0)
            cell_leads = [leads(cell, trials, entrants, seeds, args.repeats, random) for cell in cells]
            race = "a perfect race" if seeds == np.inf else f"the best {entrants} on {seeds} fresh seeds"
            cost = "" if seeds == np.inf else f", {trials + (entrants + 1) * seeds} trainings"
            print(f"{trials} trials, {race}{cost}: {shares(cell_leads)}")


if __name__ == "__main__":
    main()
