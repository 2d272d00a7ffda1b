"""Tests of the part of a model card about the sweep or table that the model comes from."""

import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats
from sweep_reports import report

from mlcl.results.cell_result import CellResult, FigureResult, SearchResult
from mlcl.results.model_evidence import model_evidence
from mlcl.results.sweep_arms import ArmSearch
from mlcl.results.table_result import TableResult
from mlcl.results.training_result import SettingResult, TrainingResult
from mlcl.significance.roles import Role
from mlcl.tracking import State

VALUES = (0.61, 0.64, 0.59)
BASELINE = Role.BASELINE | Role.CONTROL


def training(seed, test, state=State.COMPLETE, run="", blocks=()):
    metrics = {"val/accuracy": test, "test/accuracy": test, "test/macro_f1": test / 2}
    fields = {"blocks": {"test/accuracy": blocks}, "run_id": f"{run}{seed}"}
    return TrainingResult(str(seed), "", state, metrics=metrics, seed=seed, **fields)


def setting(name, role, values, **how):
    seeds = tuple(training(seed, value, run=name, **how) for seed, value in enumerate(values))
    return SettingResult(name, (name,), State.COMPLETE, {}, seeds, name, role, arm=name)


def interval(values, rows=0.0):
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return " to ".join(f"{statistics.fmean(values) + sign * half:.4f}" for sign in (-1, 1))


@pytest.fixture
def sweep():
    settings = (setting("heads", Role.MODEL, VALUES), setting("control", BASELINE, (0.5, 0.52, 0.51)))
    return report(confirmations=settings, score="val/accuracy", fresh_score="val/accuracy")


def test_a_confirmed_setting_has_its_figures_with_intervals_and_the_verdicts(sweep):
    text = model_evidence(sweep, "heads1")
    assert "heads of the sweep job-space, 3 seeds:" in text
    assert f"| test/accuracy | {statistics.fmean(VALUES):.4f} | {interval(VALUES)} |" in text
    assert "| test/macro_f1 | 0.3067 |" in text
    assert [f"- {verdict.sentence}" in text for verdict in sweep.verdicts] == [True, True]


def test_a_trial_of_the_search_has_the_verdicts_alone(sweep):
    text = model_evidence(sweep, "trial")
    assert "interval |" not in text
    assert sweep.verdicts[0].sentence in text
    assert model_evidence(replace(sweep, confirmations=()), "trial") == ""


def test_one_seed_has_no_interval_and_a_failed_one_does_not_count(sweep):
    heads = sweep.confirmations[0]
    seeds = (heads.seeds[0], training(1, 0.1, State.FAILED, "heads"))
    one_seed_sweep = replace(sweep, confirmations=(replace(heads, seeds=seeds),))
    assert "1 seed:" in model_evidence(one_seed_sweep, "heads0")
    assert "| test/accuracy | 0.6100 |  |" in model_evidence(one_seed_sweep, "heads0")


def test_test_rows_widen_the_interval(sweep):
    def width(blocks):
        heads = setting("heads", Role.MODEL, VALUES, blocks=blocks)
        text = model_evidence(replace(sweep, confirmations=(heads,)), "heads0")
        (line,) = (line for line in text.splitlines() if line.startswith("| test/accuracy"))
        low, high = line.split("|")[3].split(" to ")
        return float(high) - float(low)

    assert width((0.5, 0.7, 0.6, 0.55)) > width(()) > 0


def test_a_cell_of_a_table_has_its_figures_and_its_verdicts():
    def cell(row, values):
        trainings = tuple(training(seed, value, run=row) for seed, value in enumerate(values))
        figure = FigureResult("accuracy", "test/accuracy", None, tuple(100 * v for v in values), None)
        runs = tuple(seed_training.key for seed_training in trainings)
        return CellResult(row, "tiny", row, (figure,), runs, data="d", trainings=trainings)

    cells = tuple(
        cell(row, [base + v for v in (0, 0.02, 0.01)]) for row, base in (("bce", 0.5), ("a", 0.6), ("b", 0.7))
    )
    words = ("t1", "losses", "mlcl", "", "", "", State.COMPLETE, "", Path())
    table = TableResult(*words, cells, "percent", {"accuracy": True}, control="bce")
    text = model_evidence(table, "b2")
    assert "b, tiny of the table losses, 3 seeds:" in text
    assert "| test/accuracy | 0.7100 |" in text
    assert "b is better than bce" in text
    assert "A is better" not in text
    assert "- " not in model_evidence(table, "elsewhere")


def test_the_interval_of_a_tuned_cell_is_that_of_its_searches():
    search_values = [(0.6, 0.61), (0.7, 0.71), (0.65, 0.66)]
    trainings = tuple(
        training(10 * search + seed, value)
        for search, values in enumerate(search_values)
        for seed, value in enumerate(values)
    )
    figure = FigureResult("accuracy", "test/accuracy", None, (None,) * 6, None)
    runs = tuple(seed_training.key for seed_training in trainings)
    search = SearchResult("val/accuracy", "max", {}, None, None, None, (ArmSearch(1, 8),) * 3)
    cell = CellResult("a", "tiny", "a", (figure,), runs, search=search, data="d", trainings=trainings)
    words = ("t1", "losses", "mlcl", "", "", "", State.COMPLETE, "", Path())
    text = model_evidence(TableResult(*words, (cell,), "percent", {"accuracy": True}), "11")
    means = [statistics.fmean(values) for values in search_values]
    assert "6 seeds:" in text
    assert f"| test/accuracy | {statistics.fmean(means):.4f} | {interval(means)} |" in text
