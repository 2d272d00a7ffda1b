"""Tests of budgets, of the amounts that are left and of forecasts."""

import pytest

from mlcl.errors import UserError
from mlcl.service.engine.budget import Account, Budget, Forecasts, check_budget, forecast, parse_budget
from mlcl.service.engine.entries import Cost, Entry


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


WRONG = ["", "2", "h", "0h", "0.0gpu-h", "-1h", "2 h", "2d", "1e3h", "tpu-h", "8gpuh", "1.h", "inf", "2H"]


@pytest.mark.parametrize("text", [*WRONG, "9" * 400 + "h"])
def test_everything_else_is_refused(text):
    with pytest.raises(UserError, match=r"--budget.*gpu-h") as error:
        parse_budget(text)
    assert error.value.found == text


def test_gpu_time_needs_trials_with_a_gpu():
    with pytest.raises(UserError, match="hold no GPU"):
        check_budget(parse_budget("8gpu-h"), 0)
    assert check_budget(parse_budget("8gpu-h"), 0.25) is None
    assert check_budget(parse_budget("8cpu-h"), 0) is None
    assert check_budget(None, 0) is None


@pytest.mark.parametrize(
    ("budget", "unit", "left", "over", "text"),
    [
        (None, "clock", None, False, None),
        ("2m", "clock", 20.0, False, "20.0 s"),
        ("1cpu-m", "cpu", 0.0, True, "0.0 cpu-s"),
        ("1gpu-h", "gpu", 3500.0, False, "58.3 gpu-m"),
    ],
)
def test_what_is_left_is_the_budget_without_what_all_commands_used(budget, unit, left, over, text):
    account = spent(budget)
    assert account.used() == 100.0
    assert account._ledger.units == {unit}
    assert (account.time_left(), account.is_used_up(), account.left_text()) == (left, over, text)


class Spent:
    """A ledger whose commands have used `seconds` of every unit."""

    def __init__(self, seconds):
        self.seconds, self.units = seconds, set()

    def used_time(self, unit):
        self.units.add(unit)
        return self.seconds


def spent(budget, seconds=100.0):
    return Account(budget and parse_budget(budget), Spent(seconds))


@pytest.mark.parametrize(
    ("arguments", "budget", "need", "rest"),
    [
        ((64, 175.0, 3600.0), "3gpu-h", "64 trials need 3.1 gpu-h", "2.0 gpu-h left: about 41 of them"),
        ((1, 30.0, 0.0), "2m", "1 trial needs 0.5 m", "2.0 m left"),
        ((3, 5.0, 99.0), "10cpu-s", "3 trials need 15.0 cpu-s", "0.0 cpu-s left: about 0 of them"),
        ((0, 5.0, 99.0), "10cpu-s", "0 trials need 0.0 cpu-s", "0.0 cpu-s left"),
    ],
)  # fmt: skip
def test_a_forecast_says_whether_the_rest_fits(arguments, budget, need, rest):
    assert forecast(*arguments, parse_budget(budget)) == f"forecast: {need}, the budget has {rest}"


@pytest.mark.parametrize(
    ("budget", "needs"), [("1h", "20.0 m"), ("9cpu-h", "1.3 cpu-h"), ("9gpu-h", "0.3 gpu-h")]
)
def test_forecasts_from_the_pace_and_from_what_ended(budget, needs):
    texts, clock = [], [1000.0]
    forecasts = Forecasts(spent(budget, 30.0), 2, texts.append, lambda: clock[0])
    entry = Entry("a", "a", {"train": {"epochs": 20}}, {})
    entry.cost.begin(0.0, 2, 0.5)
    forecasts.report(entry, 1, 4)
    clock[0] += 30
    forecasts.report(entry, 2, 4)
    forecasts.report(entry, 3, 4)
    assert len(texts) == 1
    assert "forecast: 4 trials need" in texts[0]
    ended_entries = [Entry(str(n), "", {}, {}, cost=Cost(600.0, 1200.0, 300.0)) for n in range(3)]
    forecasts.on_training_end(ended_entries[:2], 4)
    assert len(texts) == 1
    forecasts.on_training_end(ended_entries, 4)
    forecasts.on_training_end(ended_entries, 3)
    assert len(texts) == 2
    assert f"forecast: 4 trials need {needs}" in texts[1]
