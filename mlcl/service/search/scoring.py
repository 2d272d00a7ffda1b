"""From what a finished training reports to its score."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcl.service.engine.entries import End, Entry
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.tracking import State
from mlcl.training.run_files import RESULT


def score_training(plan: SweepPlan, entry: Entry, folder: Path, values: list[float]) -> End:
    """The end of a training of a sweep: FAILED where one of its values is not finite."""
    metrics = json.loads((folder / RESULT).read_text())
    broken = [name for name, v in zip(plan.scores, values, strict=True) if not math.isfinite(v)]
    if broken:
        return End(State.FAILED, f"{', '.join(broken)} is not a number")
    chosen = chosen_settings(plan.free, entry.job, metrics)
    score = values[plan.space.goals.index(plan.space.prune_by)]
    return End(State.COMPLETE, score=score, values=values, metrics=metrics, chosen=chosen)


def chosen_settings(
    free: Sequence[str], job: Mapping[str, Any], metrics: Mapping[str, float]
) -> dict[str, Any]:
    """The values of the `free` post-hoc keys that were the best after a training of `job`."""
    if not free or "baseline" in job:
        return {}
    grid = job["evaluation"]["knn"]["grid"]
    names = {key: key.rpartition(".")[2] for key in free}
    return {key: _one_of(grid[name], metrics[f"knn_best/{name}"]) for key, name in names.items()}


def _one_of(values: Sequence[Any], number: float) -> Any:
    """The value as it was given: metrics are all floats, k is not."""
    return next((value for value in values if value == number), number)
