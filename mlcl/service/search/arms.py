"""The arms of a sweep, searched with equally many trials: job, control (no heads), trained baselines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mlcl.config import JobConfig, Parameter, Space, covers, dump_job, flatten, job_hash, load_job
from mlcl.config.space.keys import nodes
from mlcl.config.space.search import SEEDS_OF_A_SEARCH, fresh_seeds
from mlcl.results.sweep_arms import ArmResult, ArmSearch
from mlcl.service.search.sampling import start
from mlcl.service.search.starts import asked_starts
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.significance.roles import Role

CONTROL = "control"
"""The name of the control's arm."""
RACE_OFFSET = 501
"""The offset of a race's first seed from that of the job; a confirmation has fewer seeds than this."""


@dataclass(frozen=True)
class SearchPlan:
    """The plan of one search of an arm; `number` counts the arm's searches from 1.

    `plan` has the job and the space of this search. `scope` is the search's name in the ledger, empty for the
    first search of the swept job. If `is_searched` is False, there are no trials, and the job is trained as
    written, see `_arm_searches`.
    """

    arm: str
    role: Role
    number: int
    plan: SweepPlan
    scope: str
    is_searched: bool = True

    @property
    def most_trials(self) -> int:
        """The largest number of trials: the plan's, or the number of settings that are tried in any case.

        These are the job as written, if the space has it, and the settings of `plan.try_first`.
        """
        plan = self.plan
        if not self.is_searched or not plan.try_first:
            return plan.most_trials if self.is_searched else 0
        job = plan.search_job()
        points = [start(plan.space, flatten(dump_job(job)))]
        points += [setting.point for setting in asked_starts(plan.space, job, plan.try_first)]
        return max(plan.most_trials, len({frozenset(point.items()) for point in points if point is not None}))

    @property
    def fresh_seeds(self) -> range:
        """The seeds of the confirmation, which no search and no race uses."""
        return fresh_seeds(self.plan.job.train.seed, self.number, self.plan.seeds)

    @property
    def race_seeds(self) -> range:
        """The seeds of the race, which no confirmation uses, even if a later command asks for more seeds."""
        first_seed = self.plan.job.train.seed + SEEDS_OF_A_SEARCH * (self.number - 1) + RACE_OFFSET
        return range(first_seed, first_seed + self.plan.space.search.race_seeds)

    @property
    def races(self) -> bool:
        """Whether the best trials are compared in a race; without trials, whether it chooses k-NN values."""
        races = self.is_searched or (self.plan.knn_races and self.plan.job.baseline is None)
        return races and self.plan.space.search.race_seeds > 0 and not self.plan.space.multi


def has_heads(job: JobConfig) -> bool:
    """Whether a contrastive head of the job has a weight above 0."""
    return any(head.weight > 0 for head in job.objective.heads.values())


def control_job(job: JobConfig) -> JobConfig | None:
    """Returns a job without its contrastive heads; its classifier has weight 1 and the same number of views.

    Returns None if no head has a weight above 0, since such a job is its own control.

    Example:
        >>> control_job(load_job("jobs/icd10cm_mlcl.yaml")).train.views
        2
    """
    if not has_heads(job):
        return None
    tree = dump_job(job)  # the dump has the number of views, whose default without heads is 1
    tree["objective"]["heads"] = {}
    tree["objective"]["classifier"]["weight"] = 1.0
    return load_job(tree)


def own_arm(job: JobConfig) -> str:
    """Returns the name of the swept job's arm: `heads`, or `job` if the job has no contrastive heads."""
    return "heads" if has_heads(job) else "job"


def search_plans(plan: SweepPlan) -> list[SearchPlan]:
    """Returns the searches of control and baselines, then of the swept job.

    Without fresh seeds there is only one search, of the swept job.
    """
    if not plan.seeds:
        return [arm_search(plan, own_arm(plan.job), Role.MODEL, 1, replace(plan, baselines=()))]
    arms = [(CONTROL, plan.control, Role.BASELINE | Role.CONTROL)] if plan.control is not None else []
    arms += [(name, job, Role.BASELINE) for name, job in plan.baselines]
    baseline_searches = [
        search for name, job, role in arms for search in _arm_searches(plan, name, job, role)
    ]
    model_plan, numbers = replace(plan, baselines=(), control=None), range(1, plan.searches + 1)
    return baseline_searches + [
        arm_search(plan, own_arm(plan.job), Role.MODEL, number, model_plan) for number in numbers
    ]


def _arm_searches(plan: SweepPlan, name: str, job: JobConfig, role: Role) -> list[SearchPlan]:
    """Returns the searches of a control or baseline, without trials if nothing is to be searched.

    Nothing is searched for fitted baselines, which have one seed since the seed changes nothing, for jobs
    without a key of the space, and for jobs that equal the swept job. These have one entry, or
    `plan.searches` entries if each draws its own validation rows.
    """
    arm_job = plan.with_grid(job)
    space, text = plan.spaces.get(name) or (shared_space(plan.space, job), plan.space_text)
    seeds = plan.seeds if job.baseline is None else 1
    arm_plan = replace(
        plan, job=arm_job, space=space, space_text=text, seeds=seeds, name=name, baselines=(), control=None,
        warm_start=None,
    )  # fmt: skip
    searched = (
        job.baseline is None and bool(space.parameters) and job_hash(arm_job) != job_hash(plan.search_job())
    )
    if not (searched or (plan.redraws and job.data.validation_seed is None)):
        return [SearchPlan(name, role, 1, arm_plan, scope_of(arm_plan), is_searched=False)]
    searches = [arm_search(plan, name, role, number, arm_plan) for number in range(1, plan.searches + 1)]
    if searched:
        return searches
    return [
        replace(search, is_searched=False, plan=replace(search.plan, seeds=min(search.plan.seeds, seeds)))
        for search in searches
    ]


def arm_search(plan: SweepPlan, arm: str, role: Role, number: int, search_plan: SweepPlan) -> SearchPlan:
    """Returns a search of an arm, with its part of the arm's trials and fresh seeds and its own sampler seed.

    `plan` has the numbers of trials and seeds that an arm's searches divide, and `search_plan` the job and
    the space of this search. With `plan.redraws`, each search after the first also draws its own validation
    rows, so that differences between searches include the effect of that draw.
    """
    searches = plan.searches if plan.seeds else 1
    settings = search_plan.space.search
    search_plan = replace(
        search_plan,
        trials=math.ceil(plan.trials / searches),
        seeds=math.ceil(plan.seeds / searches),
        searches=1,
        space=replace(
            search_plan.space, search=settings.model_copy(update={"seed": settings.seed + number - 1})
        ),
    )
    if number > 1 and plan.redraws and search_plan.job.data.validation_seed is None:
        search_plan = replace(
            search_plan, job=load_job(dump_job(search_plan.job), {"data.validation_seed": number})
        )
    if number > 1:
        search_plan = replace(
            search_plan, name=f"search {number}" if role is Role.MODEL else f"{arm}, search {number}"
        )
    scope = "" if role is Role.MODEL and number == 1 else scope_of(search_plan)
    return SearchPlan(arm, role, number, search_plan, scope)


def shared_space(space: Space, job: JobConfig) -> Space:
    """Returns the space without parameters whose keys a job lacks or whose conditions refer to such ones.

    A job without heads is not searched over heads, nor over the weight of its classifier, which is all of its
    objective.
    """
    job_keys, parameters = set(nodes(dump_job(job))), list[Parameter]()
    fixed_keys = () if job.objective.heads else ("objective.heads", "objective.classifier.weight")
    for parameter in space.parameters:
        drawn = all(any(covers(other.name, term.key) for other in parameters) for term in parameter.terms)
        free = not any(covers(fixed_key, key) for fixed_key in fixed_keys for key in parameter.keys)
        if drawn and free and job_keys.issuperset(parameter.keys):
            parameters.append(parameter)
    return replace(space, parameters=tuple(parameters))


def scope_of(plan: SweepPlan) -> str:
    """Returns the name of a search in the ledger: the plan's name and the first digits of its job's hash."""
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '_', plan.name)}-{job_hash(plan.job)[:8]}"


def arm_results(searches: Iterable[SearchPlan], results: Iterable[ArmSearch]) -> tuple[ArmResult, ...]:
    """Groups the results of `searches` by arm, in order; an arm without trials and races has no result."""
    arms: dict[str, ArmResult] = {}
    for search, result in zip(searches, results, strict=True):
        arm = arms.setdefault(search.arm, ArmResult(search.arm, search.role))
        if search.is_searched or search.races:
            arms[search.arm] = replace(arm, searches=(*arm.searches, result))
    return tuple(arms.values())
