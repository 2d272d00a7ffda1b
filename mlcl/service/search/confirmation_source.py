"""A confirmation as a source of trainings: chosen settings, each on the same fresh seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlcl.config import dump_job, load_job
from mlcl.service.engine.entries import Confirmation, End, Entry, Training, scoped
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.engine.source import TrainingSource
from mlcl.service.search.confirmation import Candidate
from mlcl.service.search.search_source import score_training
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.tracking import State
from mlcl.tracking.names import Tag

RACE_OFFSET = 501
"""The first seed of a race, from that of the job: a confirmation has fewer seeds."""


class ConfirmationSource(TrainingSource):
    """The trainings of chosen settings on fresh seeds: the first seed of each, then the second of each.

    In this order a stop leaves no setting without any seed.

    Args:
        plan: The plan of the search.
        ledger: Where trainings and confirmations are opened.
        store: Where they are stored.
        chosen: The settings.
        scope: The search that found them, in a ledger with several.
        seed_keys: The keys of a job that get the seed.
        race: Whether the settings race: on seeds of the race, without reading test.
    """

    store: NestedTrials

    def __init__(
        self,
        plan: SweepPlan,
        ledger: Ledger,
        store: NestedTrials,
        chosen: Sequence[Candidate],
        scope: str = "",
        seed_keys: Sequence[str] = ("train.seed",),
        *,
        race: bool = False,
    ) -> None:
        self.stage, self.test, self._race = ("race" if race else "confirmation"), not race, race
        self._seeds = race_seeds(plan) if race else fresh_seeds(plan)
        self.store, self.scores = store, plan.scores
        self._plan, self._ledger, self._scope, self._seed_keys = plan, ledger, scope, seed_keys
        self._chosen = [replace(each, key=scoped(scope, each.key)) for each in chosen]
        self._entries: list[Entry] = []
        self._waiting: list[Entry] = []

    def start(self) -> tuple[int, int]:
        """Opens all confirmations and seeds."""
        ledger, chosen = self._ledger, {each.key: each for each in self._chosen}
        for each in self._chosen:
            if each.key not in ledger.confirmations:
                new = Confirmation(
                    each.key, each.name, dump_job(each.job), dict(each.settings), self._scope, race=self._race
                )
                ledger.open_confirmation(_with_labels(new, each))
            self.store.open_confirmation(ledger.confirmations[each.key])
        # The best found may be another setting than last time.
        own = [
            its for its in ledger.confirmations.values() if (its.scope, its.race) == (self._scope, self._race)
        ]
        for its in own:
            present = _with_labels(its, chosen.get(its.key))
            if present != its:
                ledger.open_confirmation(present)
            self.store.attach(its.key).tags({Tag.CANDIDATE: " = ".join(present.labels) or "no longer"})
        for seed in self._seeds:
            self._entries += [self._open(each.key, seed) for each in self._chosen]
        self._waiting = [entry for entry in self._entries if entry.resumable]
        return len(self._entries) - len(self._waiting), len(self._entries)

    def _open(self, confirmation: str, seed: int) -> Entry:
        held, key = self._ledger.confirmations[confirmation], f"{confirmation}-seed{seed}"
        if key not in self._ledger.entries:
            job = dump_job(load_job(held.job, dict.fromkeys(self._seed_keys, seed)))
            training = Training(
                key=key,
                label=f"{held.label}, seed {seed}",
                job=job,
                settings=dict(held.settings),
                version=self._ledger.versions(self._scope)[-1].number,
                confirmation=confirmation,
                scope=self._scope,
            )
            self.store.open(self._ledger.open(training))
        return self._ledger.entries[key]

    def next(self) -> Entry | None:
        """Returns the next seed."""
        return self._waiting.pop(0) if self._waiting else None

    def complete(self, entry: Entry, values: list[float]) -> End:
        """Returns the end of a seed, as that of a trial."""
        return score_training(self._plan, entry, self.store.folder(entry), values)

    def end(self, state: State, reason: str) -> None:
        """Closes the confirmations, with the means over their seeds."""
        for each in self._chosen:
            if each.key in self._ledger.confirmations:
                ended = self._ended(each.key, state, reason)
                if self._ledger.confirmation_states.get(each.key) != ended:
                    self._ledger.append("close_confirmation", key=each.key, state=ended[0], reason=ended[1])
                self.store.close_confirmation(each.key)

    def _ended(self, key: str, state: State, reason: str) -> tuple[State, str]:
        seeds = self._ledger.seeds_of(key)
        if not seeds or any(seed.resumable for seed in seeds):
            return state, reason
        if all(seed.state is State.COMPLETE for seed in seeds):
            return State.COMPLETE, ""
        return State.FAILED, "not every seed is complete"

    @property
    def finished(self) -> bool:
        """Whether every seed has ended."""
        return all(entry.ended for entry in self._entries)


def fresh_seeds(plan: SweepPlan) -> range:
    """Returns the seeds of a confirmation: none of them is the search's or the race's."""
    first = plan.job.train.seed + 1
    return range(first, first + plan.seeds)


def race_seeds(plan: SweepPlan) -> range:
    """Returns the seeds of a race: more fresh seeds of a later command are none of them."""
    first = plan.job.train.seed + RACE_OFFSET
    return range(first, first + plan.space.search.race_seeds)


def _with_labels(confirmation: Confirmation, candidate: Candidate | None) -> Confirmation:
    """Replaces labels and roles by those that the setting has now; None is no candidate any more."""
    if candidate is None:
        return replace(confirmation, labels=())
    roles = tuple(str(role.name).lower() for role in candidate.role)
    return replace(confirmation, labels=candidate.labels, roles=roles)
