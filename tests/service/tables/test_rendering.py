"""Tests of a table as Markdown and LaTeX, with missing cells, special characters and ranks of its rows."""

import json
import re
from pathlib import Path

import pytest

from mlcl.config.table.schema import RankTests
from mlcl.results.cell_result import CellResult, FigureResult, scale_metric
from mlcl.results.documents import document
from mlcl.results.table_result import TableResult
from mlcl.results.table_verdicts import ranked_figures
from mlcl.service.tables.rendering import caption, latex, markdown, text_of
from mlcl.significance.rank_tests import rank_test
from mlcl.tracking import State


def figure(*values, printed=None, tolerance=0.5, name="Acc", digits=2):
    return FigureResult(name, f"test/{name.lower()}", printed, values, tolerance, digits)


def cell(row, column, *figures, reasons=()):
    runs = tuple(None if value is None else f"mlcl-{seed}" for seed, value in enumerate(figures[0].values))
    return CellResult(row, column, f"{row.lower()}/{column.lower()}", figures, runs, reasons)


def report(*cells, **how):
    fields = {
        "id": "mlcl-1",
        "name": "table",
        "command": "mlcl reproduce table",
        "title": "A table",
        "source": "A paper, Table 1",
        "about": "Batch size is ours.",
        "state": State.COMPLETE,
        "reason": "",
        "folder": Path("outputs/tables/mlcl-1"),
        "cells": cells,
        "unit": "percent",
        "higher": {"Acc": True, "F1": True, "HL": False},
    }
    return TableResult(**{**fields, **how})


@pytest.mark.parametrize(
    ("values", "mean", "deviation"),
    [
        ((), None, None),
        ((None,), None, None),
        ((3.0,), 3.0, None),
        ((1.0, None, 4.0), 2.5, 2.1213203435596424),
    ],
)
def test_mean_and_deviation_are_over_the_seeds_that_are_there(values, mean, deviation):
    assert (figure(*values).mean, figure(*values).deviation) == (mean, deviation)


@pytest.mark.parametrize(
    ("values", "printed", "tolerance", "verdict"),
    [
        ((72.8,), 71.3, 1.5, "within"),  # in floating point 72.8 - 71.3 exceeds 1.5
        ((69.8,), 71.3, 1.5, "within"),
        ((72.81,), 71.3, 1.5, "outside"),
        ((69.79,), 71.3, 1.5, "outside"),
        ((70.0, 74.0), 72.0, 0.1, "within"),
        ((72.0, None), 72.0, 0.1, "missing"),
        ((None,), None, 0.1, "missing"),
        ((72.0,), None, 0.1, "not judged"),
        ((72.0,), 10.0, None, "not judged"),
    ],
)
def test_a_verdict_is_about_the_mean_and_holds_at_the_edge(values, printed, tolerance, verdict):
    assert figure(*values, printed=printed, tolerance=tolerance).verdict == verdict


@pytest.mark.parametrize(
    ("value", "unit", "scale"),
    [(0.25, "percent", 25.0), (0.25, "share", 0.25), (None, "share", None), (float("nan"), "percent", None),
     (float("inf"), "share", None)],
)  # fmt: skip
def test_metrics_come_in_the_tables_unit_if_they_are_numbers(value, unit, scale):
    assert scale_metric(value, unit) == scale


@pytest.mark.parametrize(
    ("its", "text"),
    [
        (figure(71.304), "71.30"),
        (figure(71.0, 72.0, printed=71.3, digits=1), "71.5 ± 0.7 (71.3)"),
        (figure(71.0, 72.0, printed=75.0, digits=1), "71.5 ± 0.7 (75.0) !"),
        (figure(71.0, None, printed=75.0), "71.00 [1 of 2] (75.00)"),
        (figure(None, None, printed=75.0), "- (75.00)"),
        (figure(0.004, printed=0.0061, tolerance=None, digits=4), "0.0040 (0.0061)"),
    ],
)
def test_a_figure_is_ours_then_the_printed_one(its, text):
    assert text_of(its) == text


def test_figures_have_digits_and_tolerances_of_their_own():
    table = report(
        cell("CE", "All", figure(2.31, printed=2.25, tolerance=0.1, digits=3, name="HL"),
             figure(60.0, printed=62.5, tolerance=1.0, digits=1, name="F1")),
    )  # fmt: skip
    assert "| CE | 2.310 (2.250) | 60.0 (62.5) ! |" in markdown(table)
    assert caption(table)[1] == (
        "`!` marks a mean that is more than 0.1 (HL), 1 (F1) from the printed figure (1 of 2)."
    )


TWO = report(
    cell("CE", "All", figure(71.0, 72.0, printed=71.3), figure(60.0, 62.0, name="F1")),
    cell("CE", "Few", figure(50.0, None, printed=71.3), reasons=("Diverged: the loss\nis not finite",)),
    cell("MLCL", "All", figure(80.0, 80.0, printed=85.0), figure(70.0, 71.0, printed=70.5, name="F1")),
    state=State.FAILED,
)


def test_markdown_is_exactly_this():
    assert markdown(TWO) == (
        "## A table\n"
        "\n"
        "A paper, Table 1; `mlcl reproduce table`.\n"
        "\n"
        "|  | All Acc | All F1 | Few |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| CE | 71.50 ± 0.71 (71.30) | 61.00 ± 1.41 | 50.00 \\[1 of 2] (71.30) |\n"
        "| MLCL | 80.00 ± 0.00 (85.00) ! | 70.50 ± 0.71 (70.50) |  |\n"
        "\n"
        "Mean ± standard deviation over 2 seeds; in parentheses the printed figure.\n"
        "`!` marks a mean that is more than 0.5 from the printed figure (1 of 3).\n"
        "Batch size is ours.\n"
        "Missing in ce/few: Diverged: the loss is not finite.\n"
    )


def test_latex_is_exactly_this():
    assert latex(TWO) == (
        "\\begin{table}\n"
        "\\centering\n"
        "\\caption{A table. Mean $\\pm$ standard deviation over 2 seeds; in parentheses the printed figure."
        " ! marks a mean that is more than 0.5 from the printed figure (1 of 3). Batch size is ours.}\n"
        "\\begin{tabular}{lrrr}\n"
        "\\toprule\n"
        " & All Acc & All F1 & Few \\\\\n"
        "\\midrule\n"
        "CE & 71.50 $\\pm$ 0.71 (71.30) & 61.00 $\\pm$ 1.41 & 50.00 {[}1 of 2] (71.30) \\\\\n"
        "MLCL & 80.00 $\\pm$ 0.00 (85.00) ! & 70.50 $\\pm$ 0.71 (70.50) &  \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "\\end{table}\n"
    )


def test_signs_stay_signs():
    table = report(
        cell("[CLS] 5%_|\\ {a}", "τ < 1\n& <b>", figure(1.0)),
        title="50% & more\n\nthan #1",
        about="a_b $5\n\n~^",
    )
    assert r"| \[CLS] 5%_\|\\ {a} | 1.00 |" in markdown(table)
    assert r"|  | τ < 1 & \<b> |" in markdown(table)
    assert "## 50% & more than #1\n" in markdown(table)
    text = latex(table)
    assert r"{[}CLS] 5\%\_\textbar{}\textbackslash{} \{a\} & 1.00 \\" in text
    assert r" & $\tau$ \textless{} 1 \& \textless{}b\textgreater{} \\" in text
    assert (
        r"\caption{50\% \& more than \#1. One seed; no figures are printed. a\_b \$5 \textasciitilde{}"
        in text
    )
    assert "\n\n" not in text


def test_what_is_not_the_papers_setting_is_not_judged():
    table = report(cell("CE", "All", figure(10.0, printed=71.3, tolerance=None)), about="")
    assert caption(table) == [
        "One seed; in parentheses the printed figure.",
        "Figures are shown beside each other and not judged: this is not the paper's setting.",
    ]
    assert (table.outside, table.judged, table.limits) == ([], 0, {})


def test_the_numbers_of_seeds_are_those_of_all_figures():
    fitted_cell, trained_cell = (
        cell("TF-IDF", "All", figure(70.0)),
        cell("CE", "All", figure(71.0, 72.0, 73.0)),
    )
    for cells in ((fitted_cell, trained_cell), (trained_cell, fitted_cell)):
        assert caption(report(*cells))[0].startswith("Mean ± standard deviation over 1 to 3 seeds; ")
    assert caption(report(fitted_cell))[0].startswith("One seed; ")


def test_a_long_reason_is_cut_and_none_is_not_run():
    assert "Missing in ce/all: not run.\n" in markdown(report(cell("CE", "All", figure(None))))
    text = markdown(report(cell("CE", "All", figure(None), reasons=("x" * 9000,))))
    assert f"Missing in ce/all: {'x' * 500}....\n" in text


def test_cells_with_one_reason_share_a_line_and_a_column_without_figures_is_named_once():
    missing_cells = {row: cell(row, "Few", figure(None), reasons=("not here",)) for row in ("CE", "MLCL")}
    other_missing_cell = cell("CE", "All", figure(None), reasons=("not here",))
    present_cells = (cell("MLCL", "All", figure(1.0)), cell("CE", "Half", figure(1.0)))
    text = markdown(report(other_missing_cell, missing_cells["CE"], missing_cells["MLCL"], *present_cells))
    assert text.endswith("\nMissing in ce/all, all of Few: not here.\n")


def test_the_document_has_every_seeds_figure_with_its_run():
    tree = json.loads(json.dumps(document(TWO), allow_nan=False, default=str))
    few_cell = tree["cells"][1]
    assert few_cell["runs"] == ["mlcl-0", None]
    assert few_cell["figures"][0]["values"] == [50.0, None]
    assert {key: few_cell["figures"][0][key] for key in ("mean", "deviation", "verdict")} == {
        "mean": 50.0, "deviation": None, "verdict": "missing"
    }  # fmt: skip
    assert tree["cells"][0]["figures"][0]["difference"] == pytest.approx(0.2)
    assert (tree["state"], tree["folder"]) == ("FAILED", "outputs/tables/mlcl-1")
    assert (tree["outside"], tree["missing"]) == (["mlcl/all Acc"], ["ce/few Acc"])


def method(row, *values):
    result = FigureResult("Acc", "test/acc", None, values, 0.5)
    return CellResult(
        row, "All", row, (result,), tuple(f"mlcl-{seed}" for seed in range(len(values))), data="d"
    )


def test_the_first_lines_are_the_verdicts():
    cells = method("CE", 71.0, 72.0), method("MLCL", 75.0, 77.0)
    table = report(*cells)
    (conclusion,) = table.conclusions
    means = "test/acc 0.7600 against 0.7150, +0.0450"
    assert conclusion.startswith(f"All: Cannot tell whether MLCL is better than CE: {means} (95 % interval ")
    assert markdown(table).splitlines()[2] == conclusion
    assert conclusion.replace("%", "\\%") in latex(table)
    (verdict,) = document(table)["verdicts"]
    assert (verdict["cells"], conclusion) == ("All", f"All: {verdict['sentence']}")
    assert markdown(table).count(conclusion) == 1


def test_many_verdicts_are_counted_first_and_written_below():
    rows = [method(f"row {n}", 70.0 + n, 71.0 + n) for n in range(10)]
    table = report(method("CE", 71.0, 72.0), *rows)
    (counts,) = table.conclusions
    assert counts.startswith("test/acc, 10 verdicts against CE: ")
    assert sum(map(int, re.findall(r"(\d+) (?:better|worse|without|undecided)", counts))) == 10
    text = markdown(table)
    assert text.splitlines()[2] == counts
    verdict_lines = text.partition("### Verdicts\n\n")[2].splitlines()
    assert verdict_lines == [f"- All: {verdict.sentence}" for _, verdict in table.verdicts]


ROWS, COLUMNS = ("BCE", "ASL", "simdis"), ("Reuters", "AAPD", "CodiEsp")
BETTER = {"BCE": 50.0, "ASL": 51.0, "simdis": 52.0}


def f1(row, column, values):
    return cell(row, column, figure(*values, tolerance=None, name="F1", digits=1))


def steady(row, column):
    return (BETTER[row] + COLUMNS.index(column), BETTER[row] + COLUMNS.index(column) + 0.1)


def steady_report(values=steady, more=(), **how):
    """Returns a table of one metric, whose values by seed are `values(row, column)`."""
    return report(*(f1(row, column, values(row, column)) for row in ROWS for column in COLUMNS), *more, **how)


def ranks_of(table, ranks):
    return ranked_figures(table.cells, table.higher, ranks)


def test_rows_are_methods_and_columns_data_sets():
    (tree,) = ranks_of(steady_report(), RankTests(control="ASL", rope=0.5))
    assert (tree["metric"], tree["control"], tree["rope"], tree["digits"]) == ("F1", "ASL", 0.5, 1)
    assert (tuple(tree["methods"]), tuple(tree["data_sets"])) == (ROWS, COLUMNS)
    means = [[sum(steady(row, column)) / 2 for column in COLUMNS] for row in ROWS]
    assert tree["test"]["ranks"] == rank_test(means, higher=True).ranks == (3.0, 2.0, 1.0)
    assert ranks_of(steady_report(), RankTests())[0]["control"] == "BCE"
    lower_ranks = ranks_of(steady_report(higher={"F1": False}), RankTests())[0]
    assert lower_ranks["test"]["ranks"] == (1.0, 2.0, 3.0)


def test_a_cell_that_lacks_a_seed_does_not_count():
    def values(row, column):
        return (None, 51.0) if (row, column) == ("ASL", "AAPD") else steady(row, column)

    (tree,) = ranks_of(steady_report(values), RankTests())
    requirement = "this needs 3 methods, BCE among them, and 3 data sets with all cells between them."
    assert tree == {"metric": "F1", "sentences": [f"F1 is not ranked over data sets: {requirement}"]}


def test_rows_that_the_table_keeps_from_a_column_do_not_cost_the_others_that_column():
    """Tests four methods that have only texts: they are left out, and the data set of images stays."""
    images = tuple(f1(row, "images", (60.0, 61.0)) for row in ROWS)
    texts = tuple(f1(f"TF-IDF {n}", column, (40.0, 41.0)) for n in range(4) for column in COLUMNS)
    (tree,) = ranks_of(steady_report(more=(*images, *texts)), RankTests())
    assert (tuple(tree["methods"]), tuple(tree["data_sets"])) == (ROWS, (*COLUMNS, "images"))
    assert tuple(tree["left_out"]) == tuple(f"TF-IDF {n}" for n in range(4))


def test_a_row_that_is_left_out_is_neither_ranked_nor_tested():
    guess_cells = tuple(f1("guess", column, (1.0, 1.1)) for column in COLUMNS)
    guess_table = steady_report(more=guess_cells)
    (tree,) = ranks_of(guess_table, RankTests(leave_out=("guess",)))
    (plain_tree,) = ranks_of(steady_report(), RankTests())
    assert "Not compared, as the table asks: guess." in tree["sentences"]
    assert {key: tree[key] for key in ("methods", "test", "against")} == {
        key: plain_tree[key] for key in ("methods", "test", "against")
    }
    assert "guess" in ranks_of(guess_table, RankTests())[0]["methods"]
    assert ranks_of(guess_table, RankTests(leave_out=("BCE",)))[0]["control"] == "ASL"


def test_the_tests_stand_below_the_table_and_in_the_json():
    ranked_table = steady_report()
    ranked_table = steady_report(ranks=ranks_of(ranked_table, RankTests(rope=0.5)))
    text = markdown(ranked_table)
    assert text.startswith(markdown(steady_report()))
    assert "### F1 over data sets\n\nF1 of 3 methods over 3 data sets (Reuters, AAPD, CodiEsp): " in text
    assert "\n| simdis | 1.00 | +2.0 | " in text
    tex = latex(ranked_table)
    assert tex.startswith(latex(steady_report()))
    assert "\\caption{F1 of 3 methods over 3 data sets (Reuters, AAPD, CodiEsp): " in tex
    assert "\nsimdis & 1.00 & +2.0 & " in tex
    assert tex.count("\\begin{table}") == 2
    tree = json.loads(json.dumps(document(ranked_table), allow_nan=False, default=str))
    assert tree["ranks"][0]["test"]["ranks"] == [3.0, 2.0, 1.0]


LARGE = {
    "rows": {name: {"set": {"objective.heads.detail.temperature": t}}
             for name, t in (("Cold", 0.05), ("Cool", 0.2), ("Warm", 0.5))},
    "columns": {f"{lr}": {"set": {"train.lr": lr}} for lr in (0.01, 0.02, 0.03)},
    "seeds": 1,
}  # fmt: skip


def test_a_table_that_asks_for_ranks_has_them_and_is_the_same_table(tables):
    plain_report = tables.run(tables.plan(LARGE))
    assert (plain_report.ranks, "over data sets" in (plain_report.folder / "table.md").read_text()) == (
        (),
        False,
    )
    ranked_report = tables.run(tables.plan({**LARGE, "ranks": {"control": "Warm"}}))
    assert ranked_report.id == plain_report.id
    assert ranked_report.ranks == ranks_of(plain_report, RankTests(control="Warm"))
    assert "### Acc over data sets" in (plain_report.folder / "table.md").read_text()


def test_gains_over_the_other_rows_and_the_deviation_of_all():
    """Tests gains with Table 1 of Similarity-Dissimilarity (MS-COCO, macro-F1); Figure 2 has 3.78, 5.7 %."""
    printed_values = {"ALL": 63.32, "ANY": 57.37, "MulSupCon": 66.25, "Ours": 70.03}
    our_values = {"ALL": 60.0, "ANY": 50.0, "MulSupCon": None, "Ours": 66.0}
    cells = [
        cell(row, "COCO", figure(our_values[row], printed=printed_values[row], name="F1"))
        for row in printed_values
    ]
    text = markdown(report(*cells, gains="Ours"))
    lines = text[text.index("### Gains of Ours") :].splitlines()
    assert [line.split("|")[2].strip() for line in lines if line.startswith(("| over", "| dev"))] == [
        "+6.00, +10.0 % (+6.71, +10.6 %)",
        "+16.00, +32.0 % (+12.66, +22.1 %)",
        "- (+3.78, +5.7 %)",
        "- (5.34)",
    ]
    assert "Gains of Ours" in latex(report(*cells, gains="Ours"))
    assert "gains" not in document(report(*cells))


def test_columns_whose_heads_read_alike_are_all_there():
    """Tests columns `A` with a figure `B C`, and `A B` with `C`: both heads are `A B C`."""
    first_cell = cell("CE", "A", figure(1.0, name="B C"), figure(2.0, name="D"))
    second_cell = cell("CE", "A B", figure(3.0, name="C"), figure(4.0, name="D"))
    lines = markdown(
        report(first_cell, second_cell, higher=dict.fromkeys(("B C", "C", "D"), True))
    ).splitlines()
    assert "|  | A B C | A D | A B C | A B D |" in lines
    assert "| CE | 1.00 | 2.00 | 3.00 | 4.00 |" in lines


def test_a_table_without_the_row_of_its_gains_has_no_gains():
    table = report(cell("ALL", "COCO", figure(1.0)), cell("ANY", "COCO", figure(2.0)), gains="Ours")
    assert "Gains" not in markdown(table)
    assert "Gains" not in latex(table)
