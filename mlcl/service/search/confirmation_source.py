"""The source of the trainings on fresh seeds that confirm chosen settings or compare settings in a race."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mlcl.config import dump_job, load_job
from mlcl.service.engine.entries import Confirmation, End, Entry, Training, scope_key
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.engine.source import Files, TrainingSource
from mlcl.service.search.confirmation import Candidate
from mlcl.service.search.kept_files import KeptFiles
from mlcl.service.search.search_source import score_training
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.tracking import State
from mlcl.tracking.names import Tag
from mlcl.training.neighbour_grid import read_neighbours


@dataclass(frozen=True)
class ChosenSettings:
    """Settings that are all trained on `seeds`; `scope` names the search that found them."""

    settings: Sequence[Candidate]
    seeds: Sequence[int]
    scope: str = ""


class ConfirmationSource(TrainingSource):
    """Hands out the trainings of chosen settings: the first seed of each setting, then the second, and so on.

    Due to this order, a command that is stopped has trained the settings on about equally many seeds.
    `seed_keys` are the keys of a job that are set to the seed. In a `race` the test split is not evaluated.
    """

    store: NestedTrials

    def __init__(
        self,
        plan: SweepPlan,
        ledger: Ledger,
        store: NestedTrials,
        kept: KeptFiles,
        chosen: Sequence[ChosenSettings],
        seed_keys: Sequence[str] = ("train.seed",),
        *,
        race: bool = False,
    ) -> None:
        self.stage, self.test, self._is_race = ("race" if race else "confirmation"), not race, race
        self.store, self.scores = store, plan.scores
        self._plan, self._ledger, self._kept_files, self._seed_keys = plan, ledger, kept, seed_keys
        self._groups = [
            replace(
                group,
                settings=[
                    replace(candidate, key=scope_key(group.scope, candidate.key))
                    for candidate in group.settings
                ],
            )
            for group in chosen
        ]
        self._entries: list[Entry] = []
        self._waiting_entries: list[Entry] = []

    def start(self) -> tuple[int, int]:
        """Writes all confirmations and trainings to the ledger; returns the ended and the total number."""
        for group in self._groups:
            self._open_settings(group)
        most_seeds = max((len(group.seeds) for group in self._groups), default=0)
        for seed_index in range(most_seeds):
            for group in self._groups:
                if seed_index < len(group.seeds):
                    self._entries += [
                        self._open_training(candidate.key, group.seeds[seed_index])
                        for candidate in group.settings
                    ]
        self._waiting_entries = [entry for entry in self._entries if entry.resumable]
        return len(self._entries) - len(self._waiting_entries), len(self._entries)

    def _open_settings(self, group: ChosenSettings) -> None:
        """Opens the confirmations of one search; removes the labels of earlier ones that are not chosen."""
        ledger, candidates = self._ledger, {candidate.key: candidate for candidate in group.settings}
        for candidate in group.settings:
            if candidate.key not in ledger.confirmations:
                job, settings = dump_job(candidate.job), dict(candidate.settings)
                new_confirmation = Confirmation(
                    candidate.key, candidate.name, job, settings, group.scope, race=self._is_race
                )
                ledger.open_confirmation(_replace_labels(new_confirmation, candidate))
            self.store.open_confirmation(ledger.confirmations[candidate.key])
        for confirmation in list(ledger.confirmations.values()):
            if (confirmation.scope, confirmation.race) != (group.scope, self._is_race):
                continue
            _relabel(confirmation, candidates.get(confirmation.key), ledger, self.store)

    def _open_training(self, confirmation_key: str, seed: int) -> Entry:
        confirmation, key = self._ledger.confirmations[confirmation_key], f"{confirmation_key}-seed{seed}"
        if key not in self._ledger.entries:
            versions = self._ledger.versions(confirmation.scope)  # empty for a job that is not searched
            job = dump_job(load_job(confirmation.job, dict.fromkeys(self._seed_keys, seed)))
            training = Training(
                key=key,
                label=f"{confirmation.label}, seed {seed}",
                job=job,
                settings=dict(confirmation.settings),
                version=versions[-1].number if versions else 0,
                confirmation=confirmation_key,
                scope=confirmation.scope,
            )
            self.store.open(self._ledger.open(training))
        return self._ledger.entries[key]

    def next(self) -> Entry | None:
        """Returns the training of the next seed; None if there are no more."""
        return self._waiting_entries.pop(0) if self._waiting_entries else None

    def files(self, entry: Entry) -> Files:
        """Returns which files a training writes besides its metrics, and whether it logs them."""
        return self._kept_files.files(entry)

    def complete(self, entry: Entry, values: list[float]) -> End:
        """Returns the `End` of a training, with its k-NN grid in a race that chooses k-NN parameters."""
        folder = self.store.folder(entry)
        end = score_training(self._plan, entry, folder, values)
        keeps_grid = self._is_race and self._plan.knn_races and end.state is State.COMPLETE
        return replace(end, neighbours=read_neighbours(folder)) if keeps_grid else end

    def end(self, state: State, reason: str) -> None:
        """Closes the confirmations in the ledger, and logs their states and mean metrics over seeds."""
        for key, count in (
            (candidate.key, len(group.seeds)) for group in self._groups for candidate in group.settings
        ):
            if key in self._ledger.confirmations:
                outcome = self._end_state(self._ledger.seeds_of(key, count), state, reason)
                if self._ledger.confirmation_states.get(key) != outcome:
                    self._ledger.append("close_confirmation", key=key, state=outcome[0], reason=outcome[1])
                self.store.close_confirmation(key)

    def _end_state(self, seeds: Sequence[Entry], state: State, reason: str) -> tuple[State, str]:
        if not seeds or any(seed.resumable for seed in seeds):
            return state, reason
        if all(seed.state is State.COMPLETE for seed in seeds):
            return State.COMPLETE, ""
        return State.FAILED, "not every seed is complete"

    @property
    def finished(self) -> bool:
        """Whether the trainings of all settings and seeds have ended."""
        return all(entry.ended for entry in self._entries)


def drop_settings(ledger: Ledger, store: NestedTrials, scopes: Collection[str]) -> None:
    """Removes the labels of confirmed settings whose search is not among `scopes`."""
    for confirmation in list(ledger.confirmations.values()):
        if confirmation.scope not in scopes:
            _relabel(confirmation, None, ledger, store)


def _relabel(
    confirmation: Confirmation, candidate: Candidate | None, ledger: Ledger, store: NestedTrials
) -> None:
    """Sets a setting's labels and roles to the candidate's, in ledger and log; None removes the labels."""
    new_confirmation = _replace_labels(confirmation, candidate)
    if new_confirmation != confirmation:
        ledger.open_confirmation(new_confirmation)
    store.attach(confirmation.key).log_tags(
        {Tag.CANDIDATE: " = ".join(new_confirmation.labels) or "no longer"}
    )


def _replace_labels(confirmation: Confirmation, candidate: Candidate | None) -> Confirmation:
    if candidate is None:
        return replace(confirmation, labels=())
    return replace(confirmation, labels=candidate.labels, roles=candidate.role.names, trial=candidate.trial)
