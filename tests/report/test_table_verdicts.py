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
    figure = FigureResult("Acc", "test/accuracy", None, values, None, 2, validation)
    names = tuple(None if value is None else log for log, value in zip(logs, values, strict=True))
    return CellResult(row, column, row, (figure,), names, data=data, trainings=trainings, **more)


def verdicts(*cells, control="", higher=True, unit="percent"):
    return table_verdicts(cells, {"Acc": higher}, control, unit)


def pairs(found):
    return [(verdict.treated.label, verdict.reference.label) for _, verdict in found]


def test_columns_with_the_same_data_have_a_control_each():
    cells = [
        cell(row, FIRST, column=c, data="same") for c in ("trained", "frozen") for row in ("CE", "a", "b")
    ]
    group_verdicts = verdicts(*cells, control="CE")
    assert [(group, verdict.treated.label, verdict.reference.label) for group, verdict in group_verdicts] == [
        (column, row, "CE") for column in ("trained", "frozen") for row in ("a", "b")
    ]
    assert {verdict.tests for _, verdict in group_verdicts} == {2}


def test_the_control_is_the_reference_of_each_column_that_has_it():
    cells = [cell(row, FIRST, column=c, data=c) for c in ("x", "y") for row in ("a", "CE", "b")]
    group_verdicts = verdicts(*cells, cell("a", FIRST, data="z"), cell("b", FIRST, data="z"), control="CE")
    assert pairs(group_verdicts) == [("a", "CE"), ("b", "CE")] * 2
    assert [group for group, _ in group_verdicts] == ["x", "x", "y", "y"]


def test_without_a_control_the_best_baseline_on_validation_is_the_reference_or_else_the_first_cell():
    weak_baseline = cell("kNN", (90.0,) * 3, validation=(5.0,) * 3, baseline=True)
    strong_baseline = cell("SVM", (60.0,) * 3, validation=(6.0,) * 3, baseline=True)
    models = cell("a", FIRST), cell("b", SECOND)
    assert pairs(verdicts(*models, weak_baseline, strong_baseline)) == [
        ("a", "SVM"),
        ("b", "SVM"),
        ("kNN", "SVM"),
    ]
    assert pairs(verdicts(*models, weak_baseline, strong_baseline, higher=False))[0] == ("a", "kNN")
    assert pairs(verdicts(*models)) == [("b", "a")]
    assert pairs(verdicts(cell("lost", (None, None, None)), *models)) == [("b", "a")]


def test_values_are_those_of_the_trainings():
    ((_, verdict),) = verdicts(cell("a", FIRST), cell("b", SECOND))
    assert (verdict.metric, verdict.margin, verdict.answer) == ("test/accuracy", 0.005, Conclusion.HELPS)
    assert (verdict.treated.mean, verdict.reference.mean) == pytest.approx((np.mean(SECOND) / 100, 0.71))
    ((_, share),) = verdicts(cell("a", (0.70, 0.71)), cell("b", (0.80, 0.815)), unit="share")
    assert share.difference == pytest.approx(0.1025)
    ((_, lower_verdict),) = verdicts(cell("a", FIRST), cell("b", SECOND), higher=False)
    assert (lower_verdict.answer, lower_verdict.difference) == (
        Conclusion.HURTS,
        pytest.approx(-verdict.difference),
    )


def test_the_margin_is_that_of_the_reference():
    ((_, verdict),) = verdicts(cell("a", FIRST, params={"evaluation.margin": 0.2}), cell("b", SECOND))
    assert (verdict.margin, verdict.answer) == (0.2, Conclusion.NO_DIFFERENCE)


def test_rows_of_test_are_counted_where_their_blocks_are_known():
    first, second = cell("a", FIRST, blocks=(0.7, 0.71, 0.72)), cell("b", SECOND, blocks=(0.8, 0.9, 0.7))
    ((_, verdict),) = verdicts(first, second)
    assert verdict.rows_counted
    assert verdict.shares["rows"] > 0
    ((_, other_verdict),) = verdicts(first, cell("b", SECOND))
    assert not other_verdict.rows_counted
    assert "the error of the test rows is not counted" in other_verdict.sentence


def test_what_would_decide_names_the_rows_of_test():
    """Two seeds agree and the blocks do not, so that no further training decides the comparison."""
    blocks = [tuple(0.7 + 0.02 * step * (place % 2) for place in range(20)) for step in (0, 1)]
    first, second = (
        cell(row, (value, value + 0.01), blocks=row_blocks, test_rows=400)
        for row, value, row_blocks in (("a", 70.0, blocks[0]), ("b", 71.0, blocks[1]))
    )
    ((_, verdict),) = verdicts(first, second)
    assert (verdict.rows, verdict.decider.what) == (400, "rows")
    assert (
        "; variance: test rows 100%); the 400 test rows are too few: more trainings cannot"
        in verdict.sentence
    )
    assert f"about {verdict.decider.about:,} test rows would" in verdict.sentence
    ((_, unknown_verdict),) = verdicts(replace(first, test_rows=0), second)
    assert (unknown_verdict.rows, unknown_verdict.decider.what) == (0, "nothing")


def test_other_test_rows_for_each_seed_have_no_blocks_and_are_paired():
    noise = (0.0, 10.0, -5.0, 20.0)
    fields = {"blocks": (0.7, 0.71, 0.72), "changes": ("train.seed", "data.split_seed")}
    cells = (cell(row, tuple(base + n for n in noise), **fields) for row, base in (("a", 50.0), ("b", 52.0)))
    ((_, verdict),) = verdicts(*cells)
    assert not verdict.rows_counted
    ((_, steady_verdict),) = verdicts(
        cell("a", (50.0, 60.0, 55.0), changes=("data.subset.seed",)), cell("b", (52.0, 62.1, 57.0))
    )
    assert (verdict.difference, verdict.paired) == (pytest.approx(0.02), "seed")
    assert (steady_verdict.answer, steady_verdict.paired) == (Conclusion.HELPS, "seed")
    ((_, apart_verdict),) = verdicts(
        cell("a", (50.0, 60.0, 55.0), changes=("data.validation_seed",)), cell("b", (52.0, 62.1, 57.0))
    )
    assert apart_verdict.answer is Conclusion.CANNOT_TELL


def test_the_settings_of_a_cell_as_written_are_of_no_search():
    search = SearchResult("val/accuracy", "max", {}, None, None, None)
    ((_, verdict),) = verdicts(cell("a", FIRST), cell("b", SECOND, search=search))
    assert verdict.single == ("b",)
    assert "one search (b) is taken to vary by 0.016: run three" in verdict.sentence
    assert verdict.interval[1] - verdict.interval[0] > 2 * 1.96 * SEARCH_DEVIATION
    assert (verdict.decider, verdict.search_deviation) == (None, SEARCH_DEVIATION)
    given_verdict = verdicts(cell("a", FIRST), cell("b", SECOND))[0][1]
    assert (given_verdict.single, given_verdict.search_deviation) == ((), 0.0)
    assert given_verdict.interval[1] - given_verdict.interval[0] < verdict.interval[1] - verdict.interval[0]


def test_one_search_of_cells_that_are_paired_by_seed_counts_too():
    search, seed_keys = SearchResult("val/accuracy", "max", {}, None, None, None), ("data.subset.seed",)
    cells = [
        cell("a", (50.0, 60.0, 55.0), changes=seed_keys),
        cell("b", (52.0, 62.1, 57.0), changes=seed_keys),
    ]
    ((_, fixed_verdict),) = verdicts(*cells)
    ((_, searched_verdict),) = verdicts(cells[0], replace(cells[1], search=search))
    assert (fixed_verdict.paired, searched_verdict.paired) == ("seed", "seed")
    half, fixed_half = (
        (verdict.interval[1] - verdict.interval[0]) / 2 for verdict in (searched_verdict, fixed_verdict)
    )
    assert (fixed_verdict.answer, searched_verdict.answer) == (Conclusion.HELPS, Conclusion.CANNOT_TELL)
    assert 1.96 * SEARCH_DEVIATION < half < fixed_half + 4 * SEARCH_DEVIATION


def searched(row, values):
    """Returns a cell of two searches with two seeds each, whose seeds draw training rows."""
    searches = ArmSearch(1, 6), ArmSearch(2, 6)
    search = SearchResult("val/accuracy", "max", {}, None, None, None, searches=searches)
    return cell(row, values, search=search, changes=("data.subset.seed",))


def test_searches_of_one_number_are_paired():
    values = (50.0, 52.0, 70.0, 71.0)
    group_verdicts = verdicts(
        searched("a", values), searched("b", tuple(x + 2.1 for x in values)), searched("c", (52.0,) * 4)
    )
    assert [verdict.paired for _, verdict in group_verdicts] == ["search", "search"]
    ((_, verdict),) = verdicts(searched("a", values), searched("b", (52.0, 54.1, 72.0, 73.2)))
    assert (verdict.answer, verdict.single) == (Conclusion.HELPS, ())
    assert "outcomes of one search were subtracted first" in verdict.sentence


def test_a_baseline_with_the_seeds_of_the_searches_is_paired_with_them():
    model = searched("a", (50.0, 52.0, 70.0, 71.0))
    baseline = cell("SVM", (49.0, 50.9, 69.1, 70.0), baseline=True, changes=("data.subset.seed",))
    ((_, verdict),) = verdicts(model, baseline, control="a")
    assert (verdict.paired, verdict.answer) == ("search", Conclusion.HURTS)
    other = replace(
        baseline,
        trainings=tuple(replace(training, seed=training.seed + 7) for training in baseline.trainings),
    )
    ((_, verdict),) = verdicts(model, other, control="a")
    assert (verdict.paired, verdict.answer) == ("", Conclusion.CANNOT_TELL)


def test_cells_are_paired_by_their_seeds_wherever_these_stand():
    first_cell = cell("a", (50.0, 60.0, 55.0), changes=("data.subset.seed",))
    values, seeds = (62.0, 57.1, 70.0), (1, 2, 9)
    other = cell("b", values, changes=("data.subset.seed",))
    seeded_trainings = zip(other.trainings, seeds, strict=True)
    other = replace(
        other, trainings=tuple(replace(training, seed=seed) for training, seed in seeded_trainings)
    )
    ((_, verdict),) = verdicts(first_cell, other)
    assert (verdict.paired, verdict.treated.trainings) == ("seed", 2)
    assert verdict.difference == pytest.approx(0.0205)


def test_a_fitted_baseline_has_no_error_of_seeds():
    ((_, verdict),) = verdicts(cell("SVM", (70.0,) * 3, baseline=True), cell("b", SECOND))
    assert (verdict.reference.trainings, verdict.treated.trainings) == (1, 3)


def test_few_verdicts_are_sentences_and_many_are_counted():
    group_verdicts = verdicts(cell("a", FIRST), cell("b", SECOND))
    assert conclusions_of(group_verdicts) == [f"All: {group_verdicts[0][1].sentence}"]
    (counts,) = conclusions_of(group_verdicts * 9)
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
