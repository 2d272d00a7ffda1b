"""One search of a tuned cell, read from a ledger: trials, race, picked setting, and its fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from mlcl.results.sweep_arms import ArmSearch
from mlcl.results.sweep_result import rank_trials
from mlcl.service.engine.entries import Entry, scope_key
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.arms import SearchPlan
from mlcl.service.search.confirmation import (
    Candidate,
    best_candidate,
    entrants,
    most_raced,
    needs_race,
    planned_trials,
    race_winner,
    search_result,
)
from mlcl.service.search.confirmation_source import ChosenSettings
from mlcl.significance.roles import figure_name
from mlcl.store import RESUMABLE
from mlcl.tracking import State


def scores_of(trainings: Iterable[Entry]) -> list[float]:
    """Returns the scores of those trainings that are complete."""
    return [
        training.score
        for training in trainings
        if training.state is State.COMPLETE and training.score is not None
    ]


@dataclass(frozen=True)
class CellSearch:
    """A search of a tuned cell, with its trainings in a ledger, which is read once."""

    search: SearchPlan
    ledger: Ledger

    @cached_property
    def trials(self) -> list[Entry]:
        """The trials of the present space, and earlier ones that fit it."""
        return self.ledger.counted_trials(self.search.scope)

    @property
    def ended_count(self) -> int:
        """The number of trials that have ended."""
        return sum(trial.ended for trial in self.trials)

    @cached_property
    def best(self) -> Entry | None:
        """The best complete trial so far among those that the plan asks for."""
        return next(iter(rank_trials(self.planned_trials, self.search.plan.space.mode)), None)

    @cached_property
    def planned_trials(self) -> list[Entry]:
        """The trials among which the search chooses, see `planned_trials`."""
        return planned_trials(self.search, self.ledger)

    @cached_property
    def entrants(self) -> list[Candidate]:
        """The race's entrants: the job as written and the best trials so far, if there are any."""
        return (
            entrants(self.search, self.planned_trials) if self.search.races and self.best is not None else []
        )

    @property
    def race(self) -> ChosenSettings:
        """The settings and seeds of the race; without settings if none is needed, see `needs_race`."""
        candidates = self.entrants if needs_race(self.search, self.entrants) else []
        return ChosenSettings(candidates, self.search.race_seeds, self.search.scope)

    @cached_property
    def pick(self) -> Candidate | None:
        """The winner of the race, None until it has ended; without a race, the best trial so far."""
        best = self.best
        if best is None or not self.search.races:
            return None if best is None else best_candidate(best)
        return race_winner(self.search, self.entrants, self.ledger)

    @property
    def confirmation(self) -> ChosenSettings:
        """The picked setting and its fresh seeds; without settings if nothing is picked yet."""
        pick = self.pick
        return ChosenSettings([] if pick is None else [pick], self.search.fresh_seeds, self.search.scope)

    @property
    def seeds(self) -> list[Entry]:
        """The trainings of the picked setting on fresh seeds that have been started, one per seed."""
        return self._started_trainings(self.confirmation)

    @property
    def slots(self) -> list[Entry | None]:
        """The trainings of all fresh seeds of the plan; None for each that has not been started."""
        seeds = self.seeds
        return [*seeds, *[None] * (self.search.plan.seeds - len(seeds))]

    @property
    def validation(self) -> float:
        """The mean score of the pick's complete trainings, negated if lower is better; -inf without any."""
        name, sign = self.search.plan.fresh_score, 1.0 if self.search.plan.space.mode == "max" else -1.0
        seed_metrics = [seed.metrics for seed in self.seeds if seed.state is State.COMPLETE]
        scores = [
            metrics[figure] for metrics in seed_metrics if (figure := figure_name(name, metrics)) in metrics
        ]
        return sign * fmean(scores) if scores else -math.inf

    @property
    def settings(self) -> dict[str, Any] | None:
        """The searched and chosen values by job key: of the pick or, before that, of the best trial."""
        best, pick = self.best, self.pick
        if best is None or pick is None:
            return None if best is None else {**best.settings, **best.chosen}
        trial = next((trial for trial in self.trials if trial.label == pick.trial), None)
        return {**pick.settings, **({} if trial is None else trial.chosen)}

    @property
    def race_trainings(self) -> list[Entry]:
        """The trainings of the race that have been started."""
        return self._started_trainings(self.race)

    def _started_trainings(self, group: ChosenSettings) -> list[Entry]:
        keys = [scope_key(group.scope, candidate.key) for candidate in group.settings]
        return [seed for key in keys for seed in self.ledger.seeds_of(key, len(group.seeds))]

    @property
    def left(self) -> int:
        """The number of trainings that have not ended; for a race to come, its largest possible number."""
        plan, trials = self.search.plan, max(0, self.search.plan.most_trials - self.ended_count)
        race_count = most_raced(self.search)
        if trials == 0 and self.best is not None:
            race_count = self._count_open(self.race)
        pick = self.confirmation
        return trials + race_count + (self._count_open(pick) if pick.settings else plan.seeds)

    def _count_open(self, group: ChosenSettings) -> int:
        ended_count = sum(entry.ended for entry in self._started_trainings(group))
        return len(group.settings) * len(group.seeds) - ended_count

    @property
    def is_whole(self) -> bool:
        """Whether the planned number of trials have ended and all fresh seeds are complete."""
        complete = sum(seed.state is State.COMPLETE for seed in self.seeds)
        counts = (self.ended_count, complete) == (self.search.plan.most_trials, self.search.plan.seeds)
        return counts and self.left == 0

    def is_closed(self, chosen_settings: ChosenSettings) -> bool:
        """Whether all trainings of the settings have ended, and each setting is closed in the ledger."""
        keys = [scope_key(chosen_settings.scope, candidate.key) for candidate in chosen_settings.settings]
        states = [self.ledger.confirmation_states.get(key, (State.RUNNING, ""))[0] for key in keys]
        return self._count_open(chosen_settings) == 0 and not any(state in RESUMABLE for state in states)

    @property
    def result(self) -> ArmSearch:
        """The result of the search, with its race and the name of its pick, for the result of the table."""
        pick = self.pick
        result = search_result(self.search, self.entrants, self.ledger)
        return replace(result, pick="" if pick is None else pick.name)
