"""Tests of the verdicts of a table: with which cell the others are compared, and which errors count."""

from dataclasses import replace

import numpy as np
import pytest

from mlcl.config.table.schema import load_table
from mlcl.results.cell_result import CellResult, FigureResult, SearchResult
from mlcl.results.sweep_arms import ArmSearch
from mlcl.results.table_verdicts import COUNTED, conclusions_of, table_verdicts
from mlcl.results.training_result import TrainingResult
from mlcl.significance.arm_errors import SEARCH_DEVIATION
from mlcl.significance.verdict import Conclusion
from mlcl.tracking import State

FIRST, SECOND = (70.0, 71.0, 72.0), (80.0, 81.5, 82.0)


def cell(row, values, *, column="All", data="d", validation=(), blocks=None, changes=(), **more):
    """Returns a cell of accuracy in percent; each training has `blocks`, each but the first has `changes`."""
    logs = [f"{row}-{column}-{seed}" for seed in range(len(values))]
    trainings = tuple(
        TrainingResult(
            log, log, State.COMPLETE, seed=seed, log=log, blocks={"test/accuracy": blocks} if blocks else {},
            changes=dict.fromkeys(changes, seed) if seed else {},
        )
        for seed, log in enumerate(logs)
    )  # fmt: skip
    shown = FigureResult("Acc", "test/accuracy", None, values, None, 2, validation)
    names = tuple(None if value is None else log for log, value in zip(logs, values, strict=True))
    return CellResult(row, column, row, (shown,), names, data=data, trainings=trainings, **more)


def verdicts(*cells, control="", higher=True, unit="percent"):
    return table_verdicts(cells, {"Acc": higher}, control, unit)


def pairs(found):
    return [(its.treated.label, its.reference.label) for _, its in found]


def test_columns_with_the_same_data_have_a_control_each():
    cells = [
        cell(row, FIRST, column=c, data="same") for c in ("trained", "frozen") for row in ("CE", "a", "b")
    ]
    found = verdicts(*cells, control="CE")
    assert [(shared, its.treated.label, its.reference.label) for shared, its in found] == [
        (column, row, "CE") for column in ("trained", "frozen") for row in ("a", "b")
    ]
    assert {its.tests for _, its in found} == {2}


def test_the_control_is_the_reference_of_each_column_that_has_it():
    cells = [cell(row, FIRST, column=c, data=c) for c in ("x", "y") for row in ("a", "CE", "b")]
    found = verdicts(*cells, cell("a", FIRST, data="z"), cell("b", FIRST, data="z"), control="CE")
    assert pairs(found) == [("a", "CE"), ("b", "CE")] * 2
    assert [shared for shared, _ in found] == ["x", "x", "y", "y"]


def test_without_a_control_the_best_baseline_on_validation_is_the_reference_or_else_the_first_cell():
    weak = cell("kNN", (90.0,) * 3, validation=(5.0,) * 3, baseline=True)
    strong = cell("SVM", (60.0,) * 3, validation=(6.0,) * 3, baseline=True)
    models = cell("a", FIRST), cell("b", SECOND)
    assert pairs(verdicts(*models, weak, strong)) == [("a", "SVM"), ("b", "SVM"), ("kNN", "SVM")]
    assert pairs(verdicts(*models, weak, strong, higher=False))[0] == ("a", "kNN")
    assert pairs(verdicts(*models)) == [("b", "a")]
    assert pairs(verdicts(cell("lost", (None, None, None)), *models)) == [("b", "a")]


def test_values_are_those_of_the_trainings():
    ((_, its),) = verdicts(cell("a", FIRST), cell("b", SECOND))
    assert (its.metric, its.margin, its.answer) == ("test/accuracy", 0.005, Conclusion.HELPS)
    assert (its.treated.mean, its.reference.mean) == pytest.approx((np.mean(SECOND) / 100, 0.71))
    ((_, share),) = verdicts(cell("a", (0.70, 0.71)), cell("b", (0.80, 0.815)), unit="share")
    assert share.difference == pytest.approx(0.1025)
    ((_, lower),) = verdicts(cell("a", FIRST), cell("b", SECOND), higher=False)
    assert (lower.answer, lower.difference) == (Conclusion.HURTS, pytest.approx(-its.difference))


def test_the_margin_is_that_of_the_reference():
    ((_, its),) = verdicts(cell("a", FIRST, params={"evaluation.margin": 0.2}), cell("b", SECOND))
    assert (its.margin, its.answer) == (0.2, Conclusion.NO_DIFFERENCE)


def test_rows_of_test_are_counted_where_their_blocks_are_known():
    first, second = cell("a", FIRST, blocks=(0.7, 0.71, 0.72)), cell("b", SECOND, blocks=(0.8, 0.9, 0.7))
    ((_, its),) = verdicts(first, second)
    assert its.rows_counted
    assert its.shares["rows"] > 0
    ((_, without),) = verdicts(first, cell("b", SECOND))
    assert not without.rows_counted
    assert "the error of the test rows is not counted" in without.sentence


def test_what_would_decide_names_the_rows_of_test():
    """Two seeds agree and the blocks do not, so that no further training decides the comparison."""
    blocks = [tuple(0.7 + 0.02 * step * (place % 2) for place in range(20)) for step in (0, 1)]
    first, second = (
        cell(row, (value, value + 0.01), blocks=its, test_rows=400)
        for row, value, its in (("a", 70.0, blocks[0]), ("b", 71.0, blocks[1]))
    )
    ((_, its),) = verdicts(first, second)
    assert (its.rows, its.decider.what) == (400, "rows")
    assert "; variance: test rows 100%); the 400 test rows are too few: more trainings cannot" in its.sentence
    assert f"about {its.decider.about:,} test rows would" in its.sentence
    ((_, unknown),) = verdicts(replace(first, test_rows=0), second)
    assert (unknown.rows, unknown.decider.what) == (0, "nothing")


def test_other_test_rows_for_each_seed_have_no_blocks_and_are_paired():
    noise = (0.0, 10.0, -5.0, 20.0)
    how = {"blocks": (0.7, 0.71, 0.72), "changes": ("train.seed", "data.split_seed")}
    cells = (cell(row, tuple(base + n for n in noise), **how) for row, base in (("a", 50.0), ("b", 52.0)))
    ((_, its),) = verdicts(*cells)
    assert not its.rows_counted
    ((_, steady),) = verdicts(
        cell("a", (50.0, 60.0, 55.0), changes=("data.subset.seed",)), cell("b", (52.0, 62.1, 57.0))
    )
    assert (its.difference, its.paired) == (pytest.approx(0.02), "seed")
    assert (steady.answer, steady.paired) == (Conclusion.HELPS, "seed")
    ((_, apart),) = verdicts(
        cell("a", (50.0, 60.0, 55.0), changes=("data.validation_seed",)), cell("b", (52.0, 62.1, 57.0))
    )
    assert apart.answer is Conclusion.CANNOT_TELL


def test_the_settings_of_a_cell_as_written_are_of_no_search():
    search = SearchResult("val/accuracy", "max", {}, None, None, None)
    ((_, its),) = verdicts(cell("a", FIRST), cell("b", SECOND, search=search))
    assert its.single == ("b",)
    assert "one search (b) is taken to vary by 0.016: run three" in its.sentence
    assert its.interval[1] - its.interval[0] > 2 * 1.96 * SEARCH_DEVIATION
    assert (its.decider, its.search_deviation) == (None, SEARCH_DEVIATION)
    given = verdicts(cell("a", FIRST), cell("b", SECOND))[0][1]
    assert (given.single, given.search_deviation) == ((), 0.0)
    assert given.interval[1] - given.interval[0] < its.interval[1] - its.interval[0]


def test_one_search_of_cells_that_are_paired_by_seed_counts_too():
    search, drawn = SearchResult("val/accuracy", "max", {}, None, None, None), ("data.subset.seed",)
    cells = [cell("a", (50.0, 60.0, 55.0), changes=drawn), cell("b", (52.0, 62.1, 57.0), changes=drawn)]
    ((_, fixed),) = verdicts(*cells)
    ((_, its),) = verdicts(cells[0], replace(cells[1], search=search))
    assert (fixed.paired, its.paired) == ("seed", "seed")
    half, alone = ((each.interval[1] - each.interval[0]) / 2 for each in (its, fixed))
    assert (fixed.answer, its.answer) == (Conclusion.HELPS, Conclusion.CANNOT_TELL)
    assert 1.96 * SEARCH_DEVIATION < half < alone + 4 * SEARCH_DEVIATION


def searched(row, values):
    """Returns a cell of two searches with two seeds each, whose seeds draw training rows."""
    searches = ArmSearch(1, 6), ArmSearch(2, 6)
    found = SearchResult("val/accuracy", "max", {}, None, None, None, searches=searches)
    return cell(row, values, search=found, changes=("data.subset.seed",))


def test_searches_of_one_number_are_paired():
    values = (50.0, 52.0, 70.0, 71.0)
    found = verdicts(
        searched("a", values), searched("b", tuple(x + 2.1 for x in values)), searched("c", (52.0,) * 4)
    )
    assert [its.paired for _, its in found] == ["search", "search"]
    ((_, its),) = verdicts(searched("a", values), searched("b", (52.0, 54.1, 72.0, 73.2)))
    assert (its.answer, its.single) == (Conclusion.HELPS, ())
    assert "outcomes of one search were subtracted first" in its.sentence


def test_a_baseline_with_the_seeds_of_the_searches_is_paired_with_them():
    model = searched("a", (50.0, 52.0, 70.0, 71.0))
    baseline = cell("SVM", (49.0, 50.9, 69.1, 70.0), baseline=True, changes=("data.subset.seed",))
    ((_, its),) = verdicts(model, baseline, control="a")
    assert (its.paired, its.answer) == ("search", Conclusion.HURTS)
    other = replace(
        baseline, trainings=tuple(replace(each, seed=each.seed + 7) for each in baseline.trainings)
    )
    ((_, its),) = verdicts(model, other, control="a")
    assert (its.paired, its.answer) == ("", Conclusion.CANNOT_TELL)


def test_cells_are_paired_by_their_seeds_wherever_these_stand():
    one = cell("a", (50.0, 60.0, 55.0), changes=("data.subset.seed",))
    values, seeds = (62.0, 57.1, 70.0), (1, 2, 9)
    other = cell("b", values, changes=("data.subset.seed",))
    moved = zip(other.trainings, seeds, strict=True)
    other = replace(other, trainings=tuple(replace(each, seed=seed) for each, seed in moved))
    ((_, its),) = verdicts(one, other)
    assert (its.paired, its.treated.trainings) == ("seed", 2)
    assert its.difference == pytest.approx(0.0205)


def test_a_fitted_baseline_has_no_error_of_seeds():
    ((_, its),) = verdicts(cell("SVM", (70.0,) * 3, baseline=True), cell("b", SECOND))
    assert (its.reference.trainings, its.treated.trainings) == (1, 3)


def test_few_verdicts_are_sentences_and_many_are_counted():
    few = verdicts(cell("a", FIRST), cell("b", SECOND))
    assert conclusions_of(few) == [f"All: {few[0][1].sentence}"]
    (counts,) = conclusions_of(few * 9)
    zeros = {answer: f"0 {word}" for answer, word in COUNTED.items()} | {Conclusion.HELPS: "9 better"}
    assert counts == f"test/accuracy, 9 verdicts against a: {', '.join(zeros.values())}."


HEAD = """
title: t
experiment: e
source: s
job: job.yaml
metrics: {Acc: test/accuracy}
tolerance: 1.0
rows: {guess: {}, CE: {}, MLCL: {}}
columns: {All: {}}
"""


@pytest.mark.parametrize(
    ("more", "control"),
    [("", ""), ("ranks: {leave_out: [guess]}", "CE"), ("ranks: {control: MLCL}", "MLCL"),
     ("tune: {space: s.yaml, trials: 2, control: CE, hold: [train.lr]}", "CE")],
)  # fmt: skip
def test_the_control_that_a_table_names(tmp_path, more, control):
    (tmp_path / "t.yaml").write_text(HEAD + more)
    assert load_table(tmp_path / "t.yaml").control == control
