"""A confirmation as a source of trainings: chosen settings, each on the same fresh seeds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

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
from mlcl.training.neighbour_grid import read_neighbours


@dataclass(frozen=True)
class ChosenSettings:
    """Settings that are trained on the same fresh seeds; `scope` is the search that found them."""

    settings: Sequence[Candidate]
    seeds: Sequence[int]
    scope: str = ""


class ConfirmationSource(TrainingSource):
    """The trainings of chosen settings on fresh seeds: the first seed of each, then the second of each.

    In this order a stop leaves no setting without any seed.

    Args:
        plan: The plan of the searches.
        ledger: Where trainings and confirmations are opened.
        store: Where they are stored.
        chosen: The settings of each search.
        seed_keys: The keys of a job that get the seed.
        race: Whether the settings race: test is not read.
    """

    store: NestedTrials

    def __init__(
        self,
        plan: SweepPlan,
        ledger: Ledger,
        store: NestedTrials,
        chosen: Sequence[ChosenSettings],
        seed_keys: Sequence[str] = ("train.seed",),
        *,
        race: bool = False,
    ) -> None:
        self.stage, self.test, self._race = ("race" if race else "confirmation"), not race, race
        self.store, self.scores = store, plan.scores
        self._plan, self._ledger, self._seed_keys = plan, ledger, seed_keys
        self._chosen = [
            replace(its, settings=[replace(each, key=scoped(its.scope, each.key)) for each in its.settings])
            for its in chosen
        ]
        self._entries: list[Entry] = []
        self._waiting: list[Entry] = []

    def start(self) -> tuple[int, int]:
        """Opens all confirmations and seeds."""
        for its in self._chosen:
            self._open_settings(its)
        longest = max((len(its.seeds) for its in self._chosen), default=0)
        for place in range(longest):
            for its in self._chosen:
                if place < len(its.seeds):
                    self._entries += [self._open(each.key, its.seeds[place]) for each in its.settings]
        self._waiting = [entry for entry in self._entries if entry.resumable]
        return len(self._entries) - len(self._waiting), len(self._entries)

    def _open_settings(self, chosen: ChosenSettings) -> None:
        """Opens the confirmations of one search. The best found may be another setting than last time."""
        ledger, present = self._ledger, {each.key: each for each in chosen.settings}
        for each in chosen.settings:
            if each.key not in ledger.confirmations:
                job, settings = dump_job(each.job), dict(each.settings)
                new = Confirmation(each.key, each.name, job, settings, chosen.scope, race=self._race)
                ledger.open_confirmation(_with_labels(new, each))
            self.store.open_confirmation(ledger.confirmations[each.key])
        for its in list(ledger.confirmations.values()):
            if (its.scope, its.race) != (chosen.scope, self._race):
                continue
            _relabel(its, present.get(its.key), ledger, self.store)

    def _open(self, confirmation: str, seed: int) -> Entry:
        held, key = self._ledger.confirmations[confirmation], f"{confirmation}-seed{seed}"
        if key not in self._ledger.entries:
            versions = self._ledger.versions(held.scope)  # none of a job that is not searched
            job = dump_job(load_job(held.job, dict.fromkeys(self._seed_keys, seed)))
            training = Training(
                key=key,
                label=f"{held.label}, seed {seed}",
                job=job,
                settings=dict(held.settings),
                version=versions[-1].number if versions else 0,
                confirmation=confirmation,
                scope=held.scope,
            )
            self.store.open(self._ledger.open(training))
        return self._ledger.entries[key]

    def next(self) -> Entry | None:
        """Returns the next seed."""
        return self._waiting.pop(0) if self._waiting else None

    def complete(self, entry: Entry, values: list[float]) -> End:
        """Returns the end of a seed, as that of a trial; in a race with the grid of its neighbours."""
        folder = self.store.folder(entry)
        end = score_training(self._plan, entry, folder, values)
        keeps_grid = self._race and self._plan.knn_races and end.state is State.COMPLETE
        return replace(end, neighbours=read_neighbours(folder)) if keeps_grid else end

    def end(self, state: State, reason: str) -> None:
        """Closes the confirmations, with the means over their seeds."""
        for each in (each for its in self._chosen for each in its.settings):
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


def drop_settings(ledger: Ledger, store: NestedTrials, scopes: Collection[str]) -> None:
    """Takes the labels from the settings of searches that are not among `scopes` any more."""
    for its in list(ledger.confirmations.values()):
        if its.scope not in scopes:
            _relabel(its, None, ledger, store)


def _relabel(its: Confirmation, candidate: Candidate | None, ledger: Ledger, store: NestedTrials) -> None:
    """Writes the labels that a setting has now to ledger and log; None is no candidate any more."""
    now = _with_labels(its, candidate)
    if now != its:
        ledger.open_confirmation(now)
    store.attach(its.key).tags({Tag.CANDIDATE: " = ".join(now.labels) or "no longer"})


def _with_labels(confirmation: Confirmation, candidate: Candidate | None) -> Confirmation:
    """Replaces labels and roles by those that the setting has now; None is no candidate any more."""
    if candidate is None:
        return replace(confirmation, labels=())
    roles = tuple(str(role.name).lower() for role in candidate.role)
    return replace(confirmation, labels=candidate.labels, roles=roles, trial=candidate.trial)
