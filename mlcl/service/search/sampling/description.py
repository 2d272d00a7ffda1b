"""A space in plain data: what is varied, over what, in how many combinations, and how it is searched."""

from __future__ import annotations

import math
from typing import Any

from mlcl.config import JobConfig, Parameter, Space, dump_job, load_job
from mlcl.config.space.space import branches
from mlcl.service.search.sampling.trial_settings import example

CONTINUOUS = "continuous"


def grid_size(space: Space) -> int | None:
    """Combinations of choices and whole numbers, each branch of `when` by itself; None: a continuum."""
    if any(parameter.domain.continuous for parameter in space.parameters):
        return None
    return sum(count for _, count in branches(space.parameters))


def describe(space: Space, job: JobConfig) -> dict[str, Any]:
    """Everything that the space says, resolved against its job."""
    combinations = grid_size(space)
    return {
        "parameters": [_parameter(parameter) for parameter in space.parameters],
        "combinations": CONTINUOUS if combinations is None else combinations,
        "posthoc": _posthoc(space, job),
        "goals": [{"metric": goal.metric, "mode": goal.mode} for goal in space.goals],
        "prune_by": space.metric if space.search.scheduler != "none" else None,
        "sampler": space.search.sampler,
        "scheduler": space.search.scheduler,
        "seed": space.search.seed,
        "example": example(space, space.search.seed),
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {"name": parameter.name, **parameter.domain.description(), "when": parameter.condition}


def _posthoc(space: Space, job: JobConfig) -> dict[str, Any] | None:
    """The settings that every trial is scored at after its training, those of the job's grid included."""
    if not space.posthoc:
        return None
    knn = load_job(dump_job(job), space.posthoc).evaluation.knn
    assert knn is not None
    assert knn.grid is not None
    grid = {key: list(values) for key, values in knn.grid.model_dump(by_alias=True).items()}
    return {
        "grid": grid,
        "varied": [key.rpartition(".")[2] for key in space.posthoc],
        "settings": math.prod(len(values) for values in grid.values()),
    }
