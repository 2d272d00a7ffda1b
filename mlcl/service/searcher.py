"""Optuna behind Ray Tune, with states that are true.

Ray's own OptunaSearch tells Optuna COMPLETE for a trial that a scheduler stopped early, with the score of
its last rung: the sampler then learns from mixed fidelities. Here such a trial is told PRUNED, with all of
its intermediate values, and a score that is not a number is told FAIL instead of leaving the trial RUNNING.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from ray.tune.search import Searcher

from mlcl.config import SearchConfig

SCORE, EPOCH, FINAL = "score", "epoch", "final"
"""Keys of what a trial reports: its score, its own epoch counter, 1 with the last result."""


def build_sampler(search: SearchConfig) -> BaseSampler:
    """`tpe` (multivariate, aware of running trials) or `random`."""
    if search.sampler == "random":
        return RandomSampler(seed=search.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return TPESampler(multivariate=True, n_startup_trials=search.startup, seed=search.seed)


def open_study(path: Path, name: str, search: SearchConfig, mode: str) -> optuna.Study:
    """The study of a sweep, in a journal file. Named after the sweep: a shared name would join studies."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        study_name=name,
        storage=JournalStorage(JournalFileBackend(str(path))),
        sampler=build_sampler(search),
        direction="maximize" if mode == "max" else "minimize",
        load_if_exists=True,
    )


class DriverOnly:
    """Lives in the driver's process alone: Tune's own snapshots leave its content out.

    A sweep goes on from the study's journal and the run folders, never from those snapshots.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {}


class OptunaSearcher(DriverOnly, Searcher):
    """Asks the study for settings and tells it what became of them.

    `begin(trial_id, optuna_trial)` returns Tune's config of a new trial.
    """

    def __init__(
        self, study: optuna.Study, mode: str, begin: Callable[[str, optuna.Trial], dict[str, Any]]
    ) -> None:
        super().__init__(metric=SCORE, mode=mode)
        self._study = study
        self._begin = begin
        self._open: dict[str, optuna.Trial] = {}

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """The config of a new trial."""
        trial = self._study.ask()
        self._open[trial_id] = trial
        return self._begin(trial_id, trial)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """An intermediate value, at the trial's own epoch."""
        trial = self._open.get(trial_id)
        if trial is not None and math.isfinite(result.get(SCORE, math.nan)):
            trial.report(float(result[SCORE]), int(result[EPOCH]))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """COMPLETE with the final score, PRUNED if stopped before it, FAIL for an error or no number."""
        trial = self._open.pop(trial_id, None)
        if trial is None:
            return
        result = result or {}
        if result.get(FINAL) and not error:
            self._tell_final(trial, float(result[SCORE]))
        else:
            self._study.tell(trial, state=TrialState.FAIL if error or not result else TrialState.PRUNED)

    def _tell_final(self, trial: optuna.Trial, score: float) -> None:
        if math.isfinite(score):
            self._study.tell(trial, score)
        else:
            self._study.tell(trial, state=TrialState.FAIL)

    def close(self) -> None:
        """Tells FAIL for what is still open: the sweep was stopped."""
        for trial_id in list(self._open):
            self._study.tell(self._open.pop(trial_id), state=TrialState.FAIL)

    def save(self, checkpoint_path: str) -> None:
        """Nothing of its own: the study is in its journal."""
        Path(checkpoint_path).write_text("{}")

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to take up."""
