"""Reads the results of a sweep into pandas, with a row for each training.

    python examples/results_in_pandas.py [SWEEP [HOME]]

The default is the sweep of `examples/sweep.py`. Trials of the search share one seed and were chosen by their
score: they rank settings. Only the rows of the confirmation, on fresh seeds, show how good a setting is.
"""

import sys

import pandas as pd

import mlcl.results


def best_trials(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the five best complete trials of the search, with the keys of the heads that varied."""
    search = frame[(frame["kind"] == "search") & (frame["state"] == "COMPLETE")]
    keys = [key for key in search if key.startswith("objective.heads.") and search[key].nunique() > 1]
    return search.nlargest(5, "score").set_index("setting")[["score", *keys]]


def on_fresh_seeds(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Returns mean, standard deviation and number of seeds of each confirmed setting, the best one first."""
    fresh = frame[frame["kind"] == "confirmation"]
    return fresh.groupby("setting")[metric].agg(["mean", "std", "count"]).sort_values("mean", ascending=False)


def main(sweep: str = "example", home: str = "outputs") -> None:
    """Prints both tables and the number of trainings by kind and state."""
    frame = mlcl.results.load(sweep, home=home)
    print(frame.groupby(["kind", "state"]).size())
    print(best_trials(frame).to_string())
    print(on_fresh_seeds(frame, "test/accuracy").to_string())


if __name__ == "__main__":
    main(*sys.argv[1:])
