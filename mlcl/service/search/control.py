"""The control of a job with contrastive heads, and the start of the heads' search at its best setting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlcl.config import JobConfig, Parameter, Space, covers, dump_job, flatten, load_job
from mlcl.config.space.domains import Misfit
from mlcl.service.search.sampling import fit

HEADS = "objective.heads"


def control_job(job: JobConfig) -> JobConfig | None:
    """Returns a job without its heads: its classifier has weight 1 and trains on as many views.

    None where no head has a weight: such a job is its own control.

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
    """Returns the point of a heads' space that is nearest to a setting of the control.

    It has the control's values, the least weights of the heads in the space, and otherwise the values of the
    job as written.

    Args:
        space: The space of the heads' search.
        job: The job as written, resolved and flat.
        settings: The values of the keys that the control's search drew.

    Returns:
        A value for each dimension, None where the space does not hold such a point.
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
    """Returns the settings of a parameter of head weights that add up to the least.

    Empty for other parameters, and where all settings add up to the same total.
    """
    if not all(key.startswith(f"{HEADS}.") and key.endswith(".weight") for key in parameter.keys):
        return {}
    ends = sorted(parameter.domain.ends(parameter.name), key=_total)
    return ends[0] if _total(ends[0]) < _total(ends[-1]) else {}


def _total(weights: Mapping[str, float]) -> float:
    return math.fsum(weights.values())
