"""Reads and writes a study's trials by number. Uses private parts of Optuna; read against Optuna 5.0."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState


class StoredStudy:
    """Trials of a study in its storage, in any state: Optuna's own interface has no way back to RUNNING."""

    def __init__(self, study: optuna.Study) -> None:
        self._study, self._storage, self._id = study, study._storage, study._study_id

    def new(self) -> optuna.Trial:
        """A new trial that runs. Study.ask would hand out one that waits."""
        return optuna.Trial(self._study, self._storage.create_new_trial(self._id))

    def add(self, trial: FrozenTrial) -> int:
        """Adds a trial as it is; its number."""
        id = self._storage.create_new_trial(self._id, template_trial=trial)
        return self._storage.get_trial_number_from_id(id)

    def trial(self, number: int) -> optuna.Trial:
        """A trial to go on with."""
        return optuna.Trial(self._study, self._id_of(number))

    def read(self, number: int) -> FrozenTrial:
        """A trial as it is stored."""
        return self._storage.get_trial(self._id_of(number))

    def set_state(self, number: int, state: TrialState) -> None:
        """Raises RuntimeError where the trial has finished."""
        self._storage.set_trial_state_values(self._id_of(number), state)

    def set_rung(self, number: int, epoch: int, score: float) -> None:
        """An intermediate value."""
        self._storage.set_trial_intermediate_value(self._id_of(number), epoch, score)

    def set_attr(self, number: int, key: str, value: Any) -> None:
        """A user attribute."""
        self._storage.set_trial_user_attr(self._id_of(number), key, value)

    def _id_of(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
