"""The control of a job, which is the job without contrastive heads, and the first trial taken from it.

The search of the job with heads tries the control's best setting early.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlcl.config import JobConfig, Parameter, Space, covers, dump_job, flatten, load_job
from mlcl.config.space.domains import Misfit
from mlcl.service.search.sampling import fit

HEADS = "objective.heads"


def control_job(job: JobConfig) -> JobConfig | None:
    """Returns a job without its contrastive heads: its classifier has weight 1 and as many views as before.

    None if no head has a weight above 0, since such a job is its own control.

    Example:
        >>> control_job(load_job("jobs/icd10cm_mlcl.yaml")).train.views
        2
    """
    if not any(head.weight > 0 for head in job.objective.heads.values()):
        return None
    tree = dump_job(job)  # it has the number of views, which would be 1 by default without heads
    tree["objective"]["heads"] = {}
    tree["objective"]["classifier"]["weight"] = 1.0
    return load_job(tree)


def control_start(space: Space, job: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the point in the space of a job with heads that is nearest to a setting of its control.

    It has the control's drawn values (`settings`), the smallest weights of the heads that the space allows,
    and otherwise the values of the job as written, which is flat; None if it lies outside the space.
    """
    nearest = dict(job)
    changed = [settings, *(least for each in space.parameters if (least := _least_weights(each)))]
    for values in changed:
        nearest = {k: v for k, v in nearest.items() if not any(covers(key, k) for key in values)}
        nearest |= flatten(values)
    try:
        return fit(space, nearest, nearest)
    except Misfit:
        return None


def _least_weights(parameter: Parameter) -> dict[str, Any]:
    """Returns the head weights with the smallest sum that a parameter draws; empty for other parameters."""
    if not all(key.startswith(f"{HEADS}.") and key.endswith(".weight") for key in parameter.keys):
        return {}
    ends = sorted(parameter.domain.ends(parameter.name), key=_total)
    return ends[0] if _total(ends[0]) < _total(ends[-1]) else {}


def _total(weights: Mapping[str, float]) -> float:
    return math.fsum(weights.values())
