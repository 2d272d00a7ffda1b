"""Tests of early stopping against loops written from the definitions."""

import math
import random
import statistics

import pytest

from mlcl.config import SearchConfig
from mlcl.service.search.pruner import ReplayPruner, rungs
from mlcl.tracking import State

EPOCHS = 40


def search(scheduler, grace=1, reduction_factor=3, startup=5):
    return SearchConfig(scheduler=scheduler, grace=grace, reduction_factor=reduction_factor, startup=startup)


def pruner(how, mode="max", *, epochs=EPOCHS, every=1, name="sweep"):
    return ReplayPruner(how, mode, epochs=epochs, every=every, name=name)


@pytest.mark.parametrize(
    ("how", "epochs", "every", "expected"),
    [
        (search("asha"), 40, 1, [1, 3, 9, 27]),
        (search("asha"), 27, 1, [1, 3, 9]),
        (search("asha", grace=2, reduction_factor=2), 30, 3, [6, 12, 24]),
        (search("asha", grace=10), 10, 1, []),
        (search("median"), 10, 3, [3, 6, 9]),
        (search("median", grace=2), 10, 3, [6, 9]),
        (search("hyperband"), 40, 1, [1, 3, 9, 27]),
        (search("none"), 10, 1, []),
    ],
)
def test_rungs(how, epochs, every, expected):
    assert rungs(how, epochs, every) == expected


def reports(trials, at, seed, ties=False):
    """Yields (number, epoch, score) of all trials, interleaved as parallel trials report them."""
    rng = random.Random(seed)
    remaining_epochs = {number: list(at) for number in range(trials)}
    while remaining_epochs:
        number = rng.choice(list(remaining_epochs)[:4])
        score = rng.randrange(4) / 4 if ties else rng.random()
        yield number, remaining_epochs[number].pop(0), score
        if not remaining_epochs[number]:
            del remaining_epochs[number]


def play(pruner, calls):
    """Returns {(number, epoch): decision} for the reports of trials until each is stopped."""
    decisions, stopped_numbers = {}, set()
    for number, epoch, score in calls:
        if number not in stopped_numbers:
            decisions[number, epoch] = pruner.should_prune(number, epoch, score)
            if decisions[number, epoch]:
                stopped_numbers.add(number)
                pruner.tell(number, State.PRUNED, score)
    return decisions


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("eta", [2, 3, 4])
def test_asha_keeps_the_best_share_of_those_that_reached_the_rung(mode, ties, eta):
    config = search("asha", grace=2, reduction_factor=eta)
    scores_by_epoch = {}
    stopped_numbers = set()
    asha_pruner = pruner(config, mode)
    for number, epoch, score in reports(60, rungs(config, EPOCHS, 1), seed=eta, ties=ties):
        if number in stopped_numbers:
            continue
        scores = scores_by_epoch.setdefault(epoch, [])
        scores.append(score if mode == "max" else -score)
        keep_count = max(1, len(scores) // eta)
        expected = scores[-1] < sorted(scores, reverse=True)[keep_count - 1]
        assert asha_pruner.should_prune(number, epoch, score) is expected
        if expected:
            stopped_numbers.add(number)
    assert 0 < len(stopped_numbers) < 60


@pytest.mark.parametrize("mode", ["max", "min"])
def test_median_stops_what_is_below_the_median_of_the_complete(mode):
    sign = 1 if mode == "max" else -1
    config = search("median", grace=2, startup=3)
    rung_epochs = rungs(config, 12, 2)
    median_pruner = pruner(config, mode, epochs=12, every=2)
    histories, stopped_count, rng = [], 0, random.Random(1)
    for number in range(40):
        history = {}
        for epoch in rung_epochs:
            history[epoch] = sign * rng.random()
            peers = [other[epoch] for other in histories]
            expected = (
                epoch >= 4
                and len(histories) >= 3
                and max(history.values()) < statistics.median(sorted(peers))
            )
            assert median_pruner.should_prune(number, epoch, sign * history[epoch]) is expected
            if expected:
                median_pruner.tell(number, State.PRUNED, sign * history[epoch])
                stopped_count += 1
                break
        else:
            median_pruner.tell(number, State.COMPLETE, sign * rng.random())
            histories.append(history)
    assert 0 < stopped_count < 37


def test_the_median_stops_no_trial_before_the_grace_has_passed():
    median_pruner = pruner(search("median", grace=2, startup=1), epochs=4)
    for epoch in (1, 2):
        median_pruner.should_prune(0, epoch, 0.5)
    median_pruner.tell(0, State.COMPLETE, 0.5)
    assert [median_pruner.should_prune(1, epoch, 0.1) for epoch in (1, 2)] == [False, True]


@pytest.mark.parametrize("scheduler", ["asha", "hyperband", "median", "none"])
def test_the_same_calls_give_the_same_decisions(scheduler):
    config = search(scheduler, startup=2)
    calls = list(reports(50, rungs(search("median"), 30, 1), seed=7))
    decisions = play(pruner(config, epochs=30), calls)
    assert play(pruner(config, epochs=30), calls) == decisions
    assert any(decisions.values()) is (scheduler in ("asha", "hyperband"))


@pytest.mark.parametrize("scheduler", ["asha", "hyperband", "median"])
def test_a_repeated_report_is_answered_as_the_first(scheduler):
    replay_pruner = pruner(search(scheduler, startup=1))
    decisions = {(n, 1): replay_pruner.should_prune(n, 1, n / 10) for n in (3, 2, 1, 0)}
    assert {(n, 1): replay_pruner.should_prune(n, 1, 99.0) for n in (0, 1, 2, 3)} == decisions


def first_bracket(name, numbers):
    """Returns the trials that Hyperband stops at epoch 1 if each trial is worse than all before it."""
    calls = [(number, 1, -place) for place, number in enumerate(numbers)]
    return sorted(
        n
        for (n, _), decision in play(pruner(search("hyperband"), epochs=27, name=name), calls).items()
        if decision
    )


def test_hyperband_brackets_depend_on_name_and_number_alone():
    forward_bracket = first_bracket("sweep", range(60))
    reverse_bracket = first_bracket("sweep", range(59, -1, -1))
    # The first trial of a bracket is never stopped, and it is another trial in the reverse order.
    assert forward_bracket[:-1] == reverse_bracket[1:]
    assert 5 < len(forward_bracket) < 55
    assert first_bracket("another", range(60)) != forward_bracket


@pytest.mark.parametrize("scheduler", ["asha", "hyperband", "median"])
@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_never_stops_a_trial_and_is_no_peer(scheduler, score):
    replay_pruner = pruner(search(scheduler, startup=1), "max")
    assert replay_pruner.should_prune(0, 1, score) is False
    assert replay_pruner.should_prune(1, 1, 0.5) is False
    replay_pruner.tell(0, State.COMPLETE, score)
    assert replay_pruner.should_prune(2, 1, score) is False


def test_a_trial_may_end_twice_and_go_on_after_a_stop():
    median_pruner = pruner(search("median", startup=1), epochs=4)
    for epoch in (1, 2):
        median_pruner.should_prune(0, epoch, 0.5)
    median_pruner.tell(0, State.STOPPED, 0.5)
    assert median_pruner.should_prune(1, 1, 0.1) is False  # no trial is complete yet
    assert median_pruner.should_prune(0, 3, 0.5) is False
    median_pruner.tell(0, State.COMPLETE, 0.5)
    median_pruner.tell(0, State.COMPLETE, 0.9)
    assert median_pruner.should_prune(1, 2, 0.1) is True
    median_pruner.tell(1, State.PRUNED, 0.1)
    median_pruner.tell(2, State.FAILED, None)
    assert median_pruner.should_prune(3, 1, 0.6) is False


def test_hyperband_decides_at_its_rungs_alone():
    config = search("hyperband")
    calls = list(reports(60, range(1, 30), seed=3))
    decisions = play(pruner(config, epochs=30), calls)
    rung_epochs = rungs(config, 30, 1)
    assert {epoch for (_, epoch), decision in decisions.items() if decision} == set(rung_epochs)
    sparse_decisions = play(pruner(config, epochs=30), [call for call in calls if call[1] in rung_epochs])
    assert sparse_decisions == {
        (number, epoch): decision for (number, epoch), decision in decisions.items() if epoch in rung_epochs
    }


def test_a_grace_beyond_the_last_epoch_stops_nothing():
    hyperband_pruner = pruner(search("hyperband", grace=50), epochs=10)
    assert not any(
        hyperband_pruner.should_prune(number, epoch, -number) for number in range(9) for epoch in range(1, 10)
    )


@pytest.mark.parametrize("scheduler", ["asha", "median"])
def test_many_trials_are_no_burden(scheduler):
    replay_pruner = pruner(search(scheduler), epochs=243)
    rng = random.Random(0)
    for number in range(400):
        for epoch in (1, 3, 9, 27, 81):
            replay_pruner.should_prune(number, epoch, rng.random())
        replay_pruner.tell(number, State.COMPLETE, rng.random())
    assert len(replay_pruner._decisions) == 2000
