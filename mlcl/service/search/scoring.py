"""From what a finished training reports to its score."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlcl.service.engine.entries import End, Entry
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.tracking import State
from mlcl.training.files import RESULT


def score_training(plan: SweepPlan, entry: Entry, folder: Path, values: list[float]) -> End:
    """The end of a training of a sweep: FAILED where one of its values is not finite."""
    metrics = json.loads((folder / RESULT).read_text())
    broken = [name for name, v in zip(plan.scores, values, strict=True) if not math.isfinite(v)]
    if broken:
        return End(State.FAILED, f"{', '.join(broken)} is not a number")
    free = () if "baseline" in entry.job else plan.free
    grid = entry.job["evaluation"]["knn"]["grid"] if free else {}
    chosen = {}
    for key in free:
        name = key.rpartition(".")[2]
        chosen[key] = _one_of(grid[name], metrics[f"knn_best/{name}"])
    score = values[plan.space.goals.index(plan.space.prune_by)]
    return End(State.COMPLETE, score=score, values=values, metrics=metrics, chosen=chosen)


def _one_of(values: Sequence[Any], number: float) -> Any:
    """The value as it was given: metrics are all floats, k is not."""
    return next((value for value in values if value == number), number)
