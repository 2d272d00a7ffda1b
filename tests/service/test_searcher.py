"""What Optuna is told: the truth."""

import math

import optuna
import pytest
from optuna.trial import TrialState

from mlcl.config import SearchConfig
from mlcl.service.searcher import EPOCH, FINAL, SCORE, OptunaSearcher, open_study


@pytest.fixture
def study(tmp_path):
    return open_study(tmp_path / "study.journal", "sweep-1", SearchConfig(), "max")


@pytest.fixture
def searcher(study):
    def begin(_trial_id, trial):
        return {"x": trial.suggest_float("x", 0, 1)}

    return OptunaSearcher(study, "max", begin)


def result(score, epoch, final=0):
    return {SCORE: score, EPOCH: epoch, FINAL: final}


def test_a_complete_trial_has_its_final_score(searcher, study):
    assert set(searcher.suggest("t")) == {"x"}
    searcher.on_trial_result("t", result(0.2, 5))
    searcher.on_trial_complete("t", result(0.7, 10, final=1))
    (trial,) = study.trials
    assert (trial.state, trial.value, trial.intermediate_values) == (TrialState.COMPLETE, 0.7, {5: 0.2})


def test_a_trial_that_was_stopped_early_is_pruned_with_its_rungs(searcher, study):
    searcher.suggest("t")
    searcher.on_trial_result("t", result(0.2, 5))
    searcher.on_trial_result("t", result(0.3, 10))
    searcher.on_trial_complete("t", result(0.3, 10))
    (trial,) = study.trials
    assert trial.state is TrialState.PRUNED
    assert trial.intermediate_values == {5: 0.2, 10: 0.3}


@pytest.mark.parametrize(
    ("last", "error"), [(None, True), (result(0.3, 5), True), (None, False), (result(math.nan, 9, 1), False)]
)
def test_an_error_or_no_number_is_a_failure_never_a_score(searcher, study, last, error):
    searcher.suggest("t")
    searcher.on_trial_complete("t", last, error=error)
    (trial,) = study.trials
    assert trial.state is TrialState.FAIL
    assert trial.value is None


def test_nothing_is_told_twice_and_nothing_stays_open(searcher, study):
    searcher.suggest("a")
    searcher.suggest("b")
    searcher.on_trial_complete("a", result(0.5, 3, 1))
    searcher.on_trial_complete("a", result(0.9, 3, 1))
    searcher.close()
    assert [t.state for t in study.trials] == [TrialState.COMPLETE, TrialState.FAIL]
    assert study.best_value == 0.5


def test_a_rung_that_is_no_number_is_not_reported(searcher, study):
    searcher.suggest("t")
    searcher.on_trial_result("t", result(math.nan, 1))
    assert study.trials[0].intermediate_values == {}


def test_the_study_is_named_after_its_sweep_and_persists(tmp_path):
    path = tmp_path / "study.journal"
    first = open_study(path, "sweep-1", SearchConfig(sampler="random"), "min")
    first.tell(first.ask(), 0.5)
    again = open_study(path, "sweep-1", SearchConfig(), "min")
    assert [t.value for t in again.trials] == [0.5]
    assert again.direction is optuna.study.StudyDirection.MINIMIZE
