"""What a sweep may spend."""

import pytest

from mlcl.errors import UserError
from mlcl.service.engine.budget import Account, Budget, check_budget, forecast, parse_budget


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("2h", 7200, "clock"),
        ("30m", 1800, "clock"),
        ("45s", 45, "clock"),
        ("1.5h", 5400, "clock"),
        ("30cpu-h", 108_000, "cpu"),
        ("8gpu-h", 28_800, "gpu"),
        (" 90gpu-m ", 5400, "gpu"),
    ],
)
def test_amounts(text, amount, unit):
    assert parse_budget(text) == Budget(amount, unit, text.strip())


@pytest.mark.parametrize(
    "text", ["", "2", "h", "0h", "0.0gpu-h", "-1h", "2 h", "2d", "1e3h", "tpu-h", "8gpuh", "1.h", "inf", "2H"]
)
def test_everything_else_is_refused(text):
    with pytest.raises(UserError, match=r"--budget.*gpu-h") as error:
        parse_budget(text)
    assert error.value.found == text


def test_an_amount_beyond_all_numbers_is_refused():
    with pytest.raises(UserError, match="--budget"):
        parse_budget("9" * 400 + "h")


def test_gpu_time_needs_trials_with_a_gpu():
    with pytest.raises(UserError, match="hold no GPU"):
        check_budget(parse_budget("8gpu-h"), 0)
    assert check_budget(parse_budget("8gpu-h"), 0.25) is None
    assert check_budget(parse_budget("8cpu-h"), 0) is None
    assert check_budget(None, 0) is None


def test_shares_add_up_while_trials_run_and_after(clock):
    account = Account(parse_budget("1gpu-m"), 10.0, clock)
    account.begin("a", 2, 0.5)
    clock.now += 20
    account.begin("b", 2, 0.25)
    assert account.used() == 20.0
    assert account.edge() == pytest.approx(40 / 0.75)
    clock.now += 20
    assert account.end("a") == 40.0
    assert account.used() == 10 + 20 + 5
    clock.now += 60
    assert (account.used(), account.left(), account.over()) == (50.0, 10.0, False)
    clock.now += 40
    assert (account.left(), account.over(), account.edge()) == (0.0, True, 0.0)
    assert account.end("b") == 120.0
    assert account.used() == 60.0


def test_cpu_time_counts_cpus(clock):
    account = Account(parse_budget("1cpu-h"), 0.0, clock)
    account.begin("a", 4, 1)
    clock.now += 100
    assert account.used() == 400.0


def test_the_clock_runs_whether_trials_do_or_not(clock):
    account = Account(parse_budget("2m"), 30.0, clock)
    assert account.edge() == 90.0
    clock.now += 60
    account.begin("a", 8, 8)
    assert (account.used(), account.edge()) == (90.0, 30.0)
    clock.now += 10
    assert account.end("a") == 10.0
    assert account.used() == 100.0
    clock.now += 1000
    assert account.over()


def test_without_a_budget_nothing_ends(clock):
    account = Account(None, 5.0, clock)
    account.begin("a", 1, 1)
    clock.now += 10
    assert (account.used(), account.left(), account.over(), account.edge()) == (15.0, None, False, None)


def test_no_edge_in_sight_while_nothing_uses_the_budget(clock):
    account = Account(parse_budget("1gpu-h"), 0.0, clock)
    assert account.edge() is None
    account.begin("a", 1, 0)
    assert account.edge() is None


def test_a_trial_runs_once_at_a_time(clock):
    account = Account(None, 0.0, clock)
    account.begin("a", 1, 0)
    with pytest.raises(ValueError, match="'a' runs already"):
        account.begin("a", 1, 0)
    account.end("a")
    with pytest.raises(KeyError):
        account.end("a")


def test_the_budget_is_spent_when_an_earlier_command_spent_it(clock):
    account = Account(parse_budget("1cpu-m"), 60.0, clock)
    assert account.over()
    assert account.edge() == 0.0


def test_a_forecast_that_does_not_fit():
    found = forecast(trials_left=64, mean_share_seconds=175.0, used=3600.0, budget=parse_budget("3gpu-h"))
    assert (found.needed, found.fits, found.trials_that_fit) == (11_200.0, False, 41)
    assert found.line() == (
        "forecast: 64 trials need 3.1 gpu-h, the budget has 2.0 gpu-h left: about 41 of them"
    )


def test_a_forecast_that_fits():
    found = forecast(trials_left=1, mean_share_seconds=30.0, used=0.0, budget=parse_budget("2m"))
    assert (found.needed, found.fits, found.trials_that_fit) == (30.0, True, 1)
    assert found.line() == "forecast: 1 trial needs 0.5 m, the budget has 2.0 m left"


def test_a_forecast_with_nothing_left_of_budget_or_trials():
    spent = forecast(trials_left=3, mean_share_seconds=5.0, used=99.0, budget=parse_budget("10cpu-s"))
    assert (spent.fits, spent.trials_that_fit) == (False, 0)
    assert (
        spent.line() == "forecast: 3 trials need 15.0 cpu-s, the budget has 0.0 cpu-s left: about 0 of them"
    )
    done = forecast(trials_left=0, mean_share_seconds=5.0, used=99.0, budget=parse_budget("10cpu-s"))
    assert (done.needed, done.fits) == (0.0, True)


def test_a_forecast_without_a_budget_or_a_cost():
    free = forecast(trials_left=10, mean_share_seconds=3600.0, used=0.0, budget=None)
    assert (free.needed, free.fits, free.trials_that_fit) == (36_000.0, None, None)
    assert free.line() == "forecast: 10 trials need 10.0 h"
    unknown = forecast(trials_left=10, mean_share_seconds=None, used=0.0, budget=parse_budget("2h"))
    assert (unknown.needed, unknown.fits) == (None, None)
    assert unknown.line() == "forecast: 10 trials: what one costs is not known yet"
