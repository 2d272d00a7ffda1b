"""A confirmation as a source of trainings: chosen settings, each on the same fresh seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlcl.config import dump_job, load_job
from mlcl.service.engine.entries import End, Entry, Group, Training, scoped
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.engine.source import TrainingSource
from mlcl.service.search.confirmation import Candidate
from mlcl.service.search.search_source import score_training
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.tracking import State
from mlcl.tracking.names import Tag


class ConfirmationSource(TrainingSource):
    """The seeds of all candidates of the search `scope`: the first seed of each, then the second of each.

    One setting's seeds after another would let a stop leave some settings without any. A job's `seed_keys`
    get the seed.
    """

    stage = "confirmation"
    store: NestedTrials

    def __init__(
        self,
        plan: SweepPlan,
        ledger: Ledger,
        store: NestedTrials,
        chosen: Sequence[Candidate],
        scope: str = "",
        seed_keys: Sequence[str] = ("train.seed",),
    ) -> None:
        self.store, self.scores = store, plan.scores
        self._plan, self._ledger, self._scope, self._seed_keys = plan, ledger, scope, seed_keys
        self._chosen = [replace(each, key=scoped(scope, each.key)) for each in chosen]
        self._entries: list[Entry] = []
        self._waiting: list[Entry] = []

    def start(self) -> tuple[int, int]:
        """Opens all groups and seeds."""
        chosen = {each.key: each for each in self._chosen}
        for each in self._chosen:
            if each.key not in self._ledger.groups:
                group = Group(each.key, each.name, dump_job(each.job), dict(each.settings), self._scope)
                self._ledger.open_group(_as_candidate(group, each))
            self.store.open_group(self._ledger.groups[each.key])
        # The best found may be another setting than last time.
        for group in [its for its in self._ledger.groups.values() if its.scope == self._scope]:
            present = _as_candidate(group, chosen.get(group.key))
            if present != group:
                self._ledger.open_group(present)
            self.store.attach(group.key).tags({Tag.CANDIDATE: " = ".join(present.labels) or "no longer"})
        first = self._plan.job.train.seed + 1  # none of them is the search's
        for seed in range(first, first + self._plan.seeds):
            self._entries += [self._open(each.key, seed) for each in self._chosen]
        self._waiting = [entry for entry in self._entries if entry.resumable]
        return len(self._entries) - len(self._waiting), len(self._entries)

    def _open(self, group: str, seed: int) -> Entry:
        held, key = self._ledger.groups[group], f"{group}-seed{seed}"
        if key not in self._ledger.entries:
            job = dump_job(load_job(held.job, dict.fromkeys(self._seed_keys, seed)))
            training = Training(
                key=key,
                label=f"{held.label}, seed {seed}",
                job=job,
                settings=dict(held.settings),
                version=self._ledger.versions(self._scope)[-1].number,
                group=group,
                scope=self._scope,
            )
            self.store.open(self._ledger.open(training))
        return self._ledger.entries[key]

    def next(self) -> Entry | None:
        """The next seed."""
        return self._waiting.pop(0) if self._waiting else None

    def complete(self, entry: Entry, values: list[float]) -> End:
        """Score, figures and chosen post-hoc keys."""
        return score_training(self._plan, entry, self.store.folder(entry), values)

    def end(self, state: State, reason: str) -> None:
        """Closes the groups: each says the mean of its seeds, and its state."""
        for each in self._chosen:
            if each.key in self._ledger.groups:
                ended = self._ended(each.key, state, reason)
                if self._ledger.group_states.get(each.key) != ended:
                    self._ledger.append("close_group", key=each.key, state=ended[0], reason=ended[1])
                self.store.close_group(each.key)

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


def _as_candidate(group: Group, candidate: Candidate | None) -> Group:
    """The group with the label and the roles that its setting has now."""
    if candidate is None:
        return replace(group, labels=())
    roles = tuple(str(role.name).lower() for role in candidate.role)
    return replace(group, labels=candidate.labels, roles=roles)
