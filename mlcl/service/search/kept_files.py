"""Chooses the trainings of a sweep that keep model and embeddings, by the job's `tracking.keep`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from mlcl.config.job import Keep
from mlcl.results.sweep_result import is_ranked
from mlcl.service.engine.entries import Confirmation, Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.engine.source import Files
from mlcl.service.search.arms import SearchPlan
from mlcl.service.search.confirmation import entrant_count
from mlcl.significance.roles import Role
from mlcl.training.run_files import MODEL, keep_figures_alone

FIGURES = Files("figures", logged=False)


class KeptFiles:
    """Decides which files a training writes, and removes models and embeddings that are not kept.

    Every method may be repeated after a kill. Files that were logged as artifacts are never removed.
    `searches` are those whose best model may be registered; a table has none, since it registers no model.
    """

    def __init__(
        self, keep: Keep, ledger: Ledger, store: NestedTrials, searches: Iterable[SearchPlan] = ()
    ) -> None:
        self._keep_rule, self._ledger, self._store = keep, ledger, store
        self._searches = {search.scope: search for search in searches if search.role is Role.MODEL}
        self._leaders: dict[str, list[Entry]] = {}
        """The best trials by search when `trim` was last called."""

    def files(self, entry: Entry) -> Files:
        """Returns the type of the model and embeddings that a training stores, and whether it logs them."""
        if self._keep_rule == "all":
            return Files("float16")
        confirmation = None if entry.confirmation is None else self._ledger.confirmations[entry.confirmation]
        if confirmation is not None and not confirmation.race:
            return Files("float16", logged=self._keep_rule == "confirmed")
        if entry.scope not in self._searches:
            return FIGURES
        # The first training of a setting in a race may be registered, if no trial has a model of it.
        if confirmation is not None and (
            self._has_trial_model(confirmation) or self._ledger.seeds_of(confirmation.key)[0] is not entry
        ):
            return FIGURES
        return Files("float16", logged=False)

    def _has_trial_model(self, confirmation: Confirmation) -> bool:
        """Whether a trial with the setting has a model: none if it took another's results or was trimmed."""
        trials = self._ledger.trials(scope=confirmation.scope)
        return any(trial.label == confirmation.trial and self.has_model(trial) for trial in trials)

    def trim(self, ended_trial: Entry) -> None:
        """Removes the files of trials that cannot enter the race, in the search of `ended_trial`."""
        scope, search = ended_trial.scope, self._searches.get(ended_trial.scope)
        if self._keep_rule == "all" or search is None:
            return
        trials = [
            trial for trial in self._ledger.ranked_trials(scope, search.plan.space.mode) if not trial.same_as
        ]
        count = entrant_count(search.plan.confirm, search.most_trials)
        leaders = trials[:count]
        # After the first call, only the new trial and the best of the last call can have changed ranks.
        changed_trials = [*self._leaders[scope], ended_trial] if scope in self._leaders else trials
        self._leaders[scope] = list(leaders)
        kept_keys = {trial.key for trial in leaders}
        self._remove_models(
            [trial for trial in changed_trials if trial.key not in kept_keys and is_ranked(trial)]
        )

    def log(self, best_key: str) -> None:
        """Logs the files of the training with the key `best_key` as artifacts, if it has a model."""
        entry = self._ledger.entries[best_key]
        if self.has_model(entry):
            self._store.log_files(entry)

    def clean(self, kept_keys: Collection[str]) -> None:
        """Removes the files of ended trainings, but not for `kept_keys` or trials that may race later."""
        if self._keep_rule != "all":
            trainings = [
                entry for entry in self._ledger.entries.values() if entry.ended and entry.key not in kept_keys
            ]
            self._remove_models([entry for entry in trainings if not self._may_race(entry)])

    def has_model(self, entry: Entry) -> bool:
        """Whether the training's folder has its model."""
        return (self._store.folder(entry) / MODEL).exists()

    def _may_race(self, entry: Entry) -> bool:
        """Whether a later race may choose the trial, in which case the trial's own model is registered."""
        search = self._searches.get(entry.scope)
        return entry.number is not None and search is not None and not search.plan.knn_races

    def _remove_models(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if self.has_model(entry) and not self._store.has_logged_files(entry):
                keep_figures_alone(self._store.folder(entry))
