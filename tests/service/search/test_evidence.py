"""Tests that a search stops for good when further trials are expected to gain less than the margin."""

from statistics import NormalDist, fmean, stdev

import numpy as np
import pytest
from ledgers import events
from sweeps import World

from mlcl.config import load_space
from mlcl.errors import UserError
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.pruner import expected_gain, least_trials, stop_reason
from mlcl.tracking import State

SPACE = """
space: {train.lr: {log_float: [0.001, 0.1]}}
search: {scheduler: none, sampler: random, startup: 4, stop: evidence}
"""


@pytest.mark.parametrize("remaining", [1, 3, 20])
def test_the_expected_gain_is_that_of_simulated_draws(remaining):
    random = np.random.default_rng(0)
    scores = random.normal(0.7, 0.02, 12).tolist()
    draws = random.normal(fmean(scores), stdev(scores), (200_000, remaining)).max(1)
    gain = np.maximum(0, draws - max(scores))
    error = gain.std() / np.sqrt(len(gain))
    assert expected_gain(scores, remaining) == pytest.approx(gain.mean(), abs=4 * error + 1e-6)


def test_of_one_trial_it_is_the_expected_improvement():
    """Tests the gain of one trial against (m - b) Phi(z) + s phi(z) with z = (m - b) / s."""
    scores = [0.5, 0.6, 0.75]
    mean, spread, best = fmean(scores), stdev(scores), max(scores)
    z, normal = (mean - best) / spread, NormalDist()
    closed_form = (mean - best) * normal.cdf(z) + spread * normal.pdf(z)
    assert expected_gain(scores, 1) == pytest.approx(closed_form, rel=1e-3)


def test_equal_scores_gain_nothing_and_more_trials_gain_more():
    assert expected_gain([0.5] * 9, 100) == 0
    gains = [expected_gain([0.5, 0.52, 0.51, 0.53], n) for n in (1, 2, 10, 100)]
    assert gains == sorted(gains)


def test_when_a_search_stops():
    close_scores, options = [0.7, 0.7001, 0.7002, 0.6999] * 3, {"startup": 4, "margin": 0.005, "mode": "max"}
    assert least_trials(4) == 8
    assert least_trials(10) == 20
    assert "12 more are expected to gain" in stop_reason(close_scores, 12, 12, **options)
    assert not stop_reason(close_scores, 12, 12, **{**options, "startup": 7})
    assert not stop_reason(close_scores, 12, 12, **{**options, "margin": 0.0})
    spread_scores = [0.5, 0.6, 0.7, 0.55] * 3
    assert not stop_reason(spread_scores, 12, 12, **options)
    # A score far below the others is a lead only if lower scores are better.
    lead_scores = [0.1, *[0.7] * 11]
    assert not stop_reason(lead_scores, 12, 12, **options)
    assert stop_reason(lead_scores, 12, 12, **{**options, "mode": "min"})
    # If most trials are pruned, fewer of the remaining ones will complete.
    middle_scores = [0.70, 0.706, 0.712, 0.718] * 3
    assert not stop_reason(middle_scores, 12, 40, **options)
    assert stop_reason(middle_scores, 120, 40, **options)


def test_a_search_stops_and_a_later_command_leaves_it_so(world, job):
    """Tests a search whose trials all have the same score, since the learning rate does not change it."""
    report = world.run(world.plan(job, SPACE, trials=20))
    ((search,),) = [arm.searches for arm in report.arms]
    assert (report.state, len(report.trials)) == (State.COMPLETE, 8)
    note = "12 of 20 trials are left out: 12 more are expected to gain 0, less than evaluation.margin 0.005"
    assert search.stopped == note
    assert f"sweep: {note}" in world.notes()
    assert report.arms[0].stops == [f"heads: {note}"]
    trained_epochs = list(world.formula.trained)
    second_report = world.run(world.plan(job, SPACE, trials=20))
    assert (second_report.arms, len(second_report.trials)) == (report.arms, 8)
    assert world.formula.trained == trained_epochs
    assert len(world.run(world.plan(job, SPACE.replace(", stop: evidence", ""), trials=10)).trials) == 10
    grown_report = world.run(world.plan(job, SPACE, trials=30))  # decides again, with the same result
    assert (len(grown_report.trials), grown_report.arms[0].searches[0].stopped[:8]) == (10, "20 of 30")


def test_settings_that_are_asked_for_are_not_left_out_and_a_search_stops_once(world, job):
    def stops(count):
        settings = [{"train.lr": lr / 100} for lr in range(2, 2 + count)]
        report = world.run(world.plan(job, SPACE, trials=20, try_first=settings))
        (stop,) = [event for event in events(world.home) if event["event"] == "stop_search"]
        return len(report.trials), stop["left_out"]

    assert stops(8) == (9, 11)  # the search stops after 8 trials, and one more is requested
    assert stops(9) == (10, 11)


def test_a_kill_before_the_end_is_written_draws_no_more(world, job, tmp_path, monkeypatch):
    plan = world.plan(job, SPACE, trials=20)
    append = Ledger.append

    def die(ledger, event, **content):
        if event == "stop_search":
            raise KeyboardInterrupt
        append(ledger, event, **content)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append", die)
        world.run(plan)
    assert world.ledger.stops == {}
    assert len(world.run(plan).trials) == 8
    unbroken_world = World(tmp_path / "whole", monkeypatch)
    assert len(unbroken_world.run(unbroken_world.plan(job, SPACE, trials=20)).trials) == 8


def test_searches_that_stop_are_confirmed(world, job):
    report = world.run(world.plan(job, SPACE, trials=40, seeds=2, searches=2))
    assert [len(arm.stops) for arm in report.arms] == [2]
    assert len(report.confirmations) == 2
    assert {setting.state for setting in report.confirmations} == {State.COMPLETE}


def test_several_goals_are_refused(tmp_path, job):
    text = "space: {train.lr: {log_float: [0.001, 0.1]}}\nsearch: {metric: [val/accuracy, val/macro_f1]"
    (tmp_path / "space.yaml").write_text(f"{text}, scheduler: none, stop: evidence}}")
    with pytest.raises(UserError, match=r"search\.stop: looks at one metric only"):
        load_space(tmp_path / "space.yaml", job)
