"""The trials and the keys of a search that its plots show; raises PlotSkipped where there are too few."""

from __future__ import annotations

import pandas as pd

from mlcl.report.plots.plot import PlotSkipped
from mlcl.report.sweep_data import SweepData
from mlcl.tracking import State

_PREFIXES = ("objective.heads.", "objective.")


def short(key: str) -> str:
    """The key without a prefix of the objective: `section.temperature`, `classifier.weight`, `train.lr`."""
    prefix = next((each for each in _PREFIXES if key.startswith(each)), "")
    return key.removeprefix(prefix)


def head_key(key: str, option: str) -> str | None:
    """The name of the head where the key is that option of a head; otherwise None."""
    prefix, suffix = _PREFIXES[0], f".{option}"
    name = key.removeprefix(prefix).removesuffix(suffix)
    return name if key == f"{prefix}{name}{suffix}" and "." not in name else None


def require_complete(data: SweepData, count: int = 1) -> None:
    """Raises PlotSkipped where fewer trials are complete."""
    found = len(data.complete)
    if not found and count:
        raise PlotSkipped("no trial is complete")
    if found < count:
        raise PlotSkipped(f"needs {count} complete trials, and there {'is' if found == 1 else 'are'} {found}")


def differing_keys(data: SweepData) -> list[str]:
    """The varied keys with several values among complete trials. Raises PlotSkipped for none."""
    keys = [key for key in data.varied if data.complete[key].nunique() > 1]
    if not keys:
        raise PlotSkipped("no key differs between complete trials")
    return keys


def pruned_trials(data: SweepData) -> pd.DataFrame:
    """The trials that were pruned after they had a score."""
    return data.search[(data.search["state"] == State.PRUNED) & data.search["score"].notna()]


def best_number(data: SweepData) -> int:
    """The number of the best trial; -1 where no trial is complete."""
    return -1 if data.best is None else int(data.best["number"])
