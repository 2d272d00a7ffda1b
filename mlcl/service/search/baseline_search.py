"""The search of a trained baseline: over the keys of the space that its job shares, with as many trials."""

from __future__ import annotations

import re
from dataclasses import replace

from mlcl.config import JobConfig, Parameter, Space, covers, dump_job, job_hash
from mlcl.config.space.keys import nodes
from mlcl.service.search.sweep_plan import SweepPlan


def shared_space(space: Space, job: JobConfig) -> Space:
    """The space without the parameters that set keys which the job lacks, or that depend on such a one."""
    known, kept = set(nodes(dump_job(job))), list[Parameter]()
    for parameter in space.parameters:
        drawn = all(any(covers(other.name, term.key) for other in kept) for term in parameter.terms)
        if drawn and known.issuperset(parameter.keys):
            kept.append(parameter)
    return replace(space, parameters=tuple(kept))


def baseline_searches(plan: SweepPlan) -> dict[str, SweepPlan]:
    """A plan for each trained baseline that shares a key of the space, by its name.

    Each has as many trials as the sweep's own search. Without a confirmation there are none.
    """
    found, written = {}, job_hash(plan.search_job())
    for name, job in plan.baselines if plan.seeds else ():
        own, space = plan.with_grid(job), shared_space(plan.space, job)
        if job.baseline is None and space.parameters and job_hash(own) != written:
            found[name] = replace(plan, job=own, space=space, name=name, baselines=(), warm_start=None)
    return found


def scope_of(plan: SweepPlan) -> str:
    """The scope of a baseline's search in the ledger: another job under the same name is another search."""
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '_', plan.name)}-{job_hash(plan.job)[:8]}"
