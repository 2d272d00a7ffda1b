"""What a sweep may spend."""

import pytest

from mlcl.errors import UserError
from mlcl.service.engine.budget import Account, Budget, Forecasts, check_budget, forecast, parse_budget
from mlcl.service.engine.entries import Cost, Entry


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
    clock.now += 20
    assert account.end("a") == 40.0
    assert account.used() == 10 + 20 + 5
    clock.now += 60
    assert (account.used(), account.left(), account.over()) == (50.0, 10.0, False)
    clock.now += 40
    assert (account.left(), account.over()) == (0.0, True)
    assert account.end("b") == 120.0
    assert account.used() == 60.0


def test_cpu_time_counts_cpus(clock):
    account = Account(parse_budget("1cpu-h"), 0.0, clock)
    account.begin("a", 4, 1)
    clock.now += 100
    assert account.used() == 400.0


def test_the_clock_runs_whether_trials_do_or_not(clock):
    account = Account(parse_budget("2m"), 30.0, clock)
    assert account.left() == 90.0
    clock.now += 60
    account.begin("a", 8, 8)
    assert (account.used(), account.left()) == (90.0, 30.0)
    clock.now += 10
    assert account.end("a") == 10.0
    assert account.used() == 100.0
    clock.now += 1000
    assert account.over()


def test_without_a_budget_nothing_ends(clock):
    account = Account(None, 5.0, clock)
    account.begin("a", 1, 1)
    clock.now += 10
    assert (account.used(), account.left(), account.over()) == (15.0, None, False)


def test_what_holds_nothing_of_the_budget_spends_nothing(clock):
    account = Account(parse_budget("1gpu-h"), 0.0, clock)
    account.begin("a", 1, 0)
    clock.now += 7200
    assert (account.used(), account.over()) == (0.0, False)


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
    assert account.left() == 0.0


def test_a_forecast_that_does_not_fit():
    assert forecast(64, 175.0, 3600.0, parse_budget("3gpu-h")) == (
        "forecast: 64 trials need 3.1 gpu-h, the budget has 2.0 gpu-h left: about 41 of them"
    )


def test_a_forecast_that_fits():
    found = forecast(1, 30.0, 0.0, parse_budget("2m"))
    assert found == "forecast: 1 trial needs 0.5 m, the budget has 2.0 m left"


def test_a_forecast_with_nothing_left_of_budget_or_trials():
    spent = forecast(3, 5.0, 99.0, parse_budget("10cpu-s"))
    assert spent == "forecast: 3 trials need 15.0 cpu-s, the budget has 0.0 cpu-s left: about 0 of them"
    done = forecast(0, 5.0, 99.0, parse_budget("10cpu-s"))
    assert done == "forecast: 0 trials need 0.0 cpu-s, the budget has 0.0 cpu-s left"


@pytest.mark.parametrize(
    ("budget", "needs"), [("1h", "20.0 m"), ("9cpu-h", "1.3 cpu-h"), ("9gpu-h", "0.3 gpu-h")]
)
def test_forecasts_from_the_pace_and_from_what_ended(clock, budget, needs):
    told = []
    forecasts = Forecasts(Account(parse_budget(budget), 0.0, clock), 2, told.append, clock)
    entry = Entry("a", "a", {"train": {"epochs": 20}}, {})
    entry.cost.begin(0.0, 2, 0.5)
    forecasts.rung(entry, 1, 4)
    clock.now += 30
    forecasts.rung(entry, 2, 4)
    forecasts.rung(entry, 3, 4)
    assert len(told) == 1
    assert "forecast: 4 trials need" in told[0]
    ended = [Entry(str(n), "", {}, {}, cost=Cost(600.0, 1200.0, 300.0)) for n in range(3)]
    forecasts.ended(ended[:2], 4)
    assert len(told) == 1
    forecasts.ended(ended, 4)
    forecasts.ended(ended, 3)
    assert len(told) == 2
    assert f"forecast: 4 trials need {needs}" in told[1]
