"""The rows of a table ranked over its columns: in its report, its Markdown and its JSON."""

import json
from pathlib import Path

from mlcl.config.table.schema import RankTests
from mlcl.results.cell_result import CellResult, FigureResult
from mlcl.results.documents import document
from mlcl.results.table_result import TableResult
from mlcl.results.table_tests import ranked_figures
from mlcl.service.tables.rendering import latex, markdown
from mlcl.significance.rank_tests import rank_test
from mlcl.tracking import State

ROWS, COLUMNS = ("BCE", "ASL", "simdis"), ("Reuters", "AAPD", "CodiEsp")
BETTER = {"BCE": 50.0, "ASL": 51.0, "simdis": 52.0}


def cell(row, column, values):
    figure = FigureResult("F1", "test/micro_f1", None, values, None, 1)
    return CellResult(row, column, f"{row}/{column}".lower(), (figure,), ("a", "b"))


def report(values, **how):
    """A table of one figure; `values(row, column)` by seed."""
    cells = tuple(cell(row, column, values(row, column)) for row in ROWS for column in COLUMNS)
    fields = {
        "id": "mlcl-1", "name": "t", "command": "mlcl reproduce t", "title": "T", "source": "S", "about": "",
        "state": State.COMPLETE, "reason": "", "folder": Path("t"), "cells": cells, "unit": "percent",
        "higher": {"F1": True},
    }  # fmt: skip
    return TableResult(**{**fields, **how})


def steady(row, column):
    return (BETTER[row] + COLUMNS.index(column), BETTER[row] + COLUMNS.index(column) + 0.1)


def ranks_of(table, ranks):
    return ranked_figures(table.cells, table.higher, ranks)


def test_rows_are_methods_and_columns_data_sets():
    (tree,) = ranks_of(report(steady), RankTests(control="ASL", rope=0.5))
    assert (tree["metric"], tree["control"], tree["rope"], tree["digits"]) == ("F1", "ASL", 0.5, 1)
    assert (tuple(tree["methods"]), tuple(tree["data_sets"])) == (ROWS, COLUMNS)
    means = [[sum(steady(row, column)) / 2 for column in COLUMNS] for row in ROWS]
    assert tree["test"]["ranks"] == rank_test(means, higher=True).ranks == (3.0, 2.0, 1.0)
    assert ranks_of(report(steady), RankTests())[0]["control"] == "BCE"
    lower = ranks_of(report(steady, higher={"F1": False}), RankTests())[0]
    assert lower["test"]["ranks"] == (1.0, 2.0, 3.0)


def test_a_cell_that_lacks_a_seed_does_not_count():
    def values(row, column):
        return (None, 51.0) if (row, column) == ("ASL", "AAPD") else steady(row, column)

    (tree,) = ranks_of(report(values), RankTests())
    need = "this needs 3 methods, BCE among them, and 3 data sets with all cells between them."
    assert tree == {"metric": "F1", "sentences": [f"F1 is not ranked over data sets: {need}"]}


def test_rows_that_the_table_keeps_from_a_column_do_not_cost_the_others_that_column():
    """Of texts alone are more methods than of all data sets, and images are one of four data sets."""
    everywhere = report(steady).cells + tuple(cell(row, "images", (60.0, 61.0)) for row in ROWS)
    texts = tuple(cell(f"TF-IDF {n}", column, (40.0, 41.0)) for n in range(4) for column in COLUMNS)
    (tree,) = ranks_of(report(steady, cells=everywhere + texts), RankTests())
    assert (tuple(tree["methods"]), tuple(tree["data_sets"])) == (ROWS, (*COLUMNS, "images"))
    assert tuple(tree["left_out"]) == tuple(f"TF-IDF {n}" for n in range(4))


def test_a_row_that_is_left_out_is_neither_ranked_nor_tested():
    guess = tuple(cell("guess", column, (1.0, 1.1)) for column in COLUMNS)
    with_guess = report(steady, cells=report(steady).cells + guess)
    (tree,) = ranks_of(with_guess, RankTests(leave_out=("guess",)))
    (without,) = ranks_of(report(steady), RankTests())
    assert "Not compared, as the table asks: guess." in tree["sentences"]
    assert {key: tree[key] for key in ("methods", "test", "against", "wins")} == {
        key: without[key] for key in ("methods", "test", "against", "wins")
    }
    assert "guess" in ranks_of(with_guess, RankTests())[0]["methods"]
    assert ranks_of(with_guess, RankTests(leave_out=("BCE",)))[0]["control"] == "ASL"


def test_the_tests_stand_below_the_table_and_in_the_json():
    ranked = report(steady)
    ranked = report(steady, ranks=ranks_of(ranked, RankTests(rope=0.5)))
    text = markdown(ranked)
    assert text.startswith(markdown(report(steady)))
    assert "### F1 over data sets\n\nF1 of 3 methods over 3 data sets (Reuters, AAPD, CodiEsp): " in text
    assert "\n| simdis | 1.00 | +2.0 | " in text
    assert "\n| 1 simdis |  | 0/3/0 | 0/3/0 |" in text  # two seeds decide nothing
    tex = latex(ranked)
    assert tex.startswith(latex(report(steady)))
    assert "\\caption{F1 of 3 methods over 3 data sets (Reuters, AAPD, CodiEsp): " in tex
    assert "\nsimdis & 1.00 & +2.0 & " in tex
    assert tex.count("\\begin{table}") == 3
    tree = json.loads(json.dumps(document(ranked), allow_nan=False, default=str))
    assert tree["ranks"][0]["test"]["ranks"] == [3.0, 2.0, 1.0]


LARGE = {
    "rows": {name: {"set": {"objective.heads.detail.temperature": t}}
             for name, t in (("Cold", 0.05), ("Cool", 0.2), ("Warm", 0.5))},
    "columns": {f"{lr}": {"set": {"train.lr": lr}} for lr in (0.01, 0.02, 0.03)},
    "seeds": 1,
}  # fmt: skip


def test_a_table_that_asks_for_ranks_has_them_and_is_the_same_table(tables):
    plain = tables.run(tables.plan(LARGE))
    assert (plain.ranks, "over data sets" in (plain.folder / "table.md").read_text()) == ((), False)
    ranked = tables.run(tables.plan({**LARGE, "ranks": {"control": "Warm"}}))
    assert ranked.id == plain.id
    assert ranked.ranks == ranks_of(plain, RankTests(control="Warm"))
    assert "### Acc over data sets" in (plain.folder / "table.md").read_text()
