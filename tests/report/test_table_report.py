"""Tests of a table's report, whose figures are those of the runs, and whose tests are those of the pairs."""

import itertools
import re
import statistics

import pytest

from mlcl.errors import UserError
from mlcl.report.report import make_report
from mlcl.results.cell_result import SearchResult
from mlcl.results.runs import Runs
from mlcl.results.settings import find_settings
from mlcl.significance.arms import Arm, Outcome, difference_of
from mlcl.significance.method_comparison import compare_methods
from mlcl.significance.method_comparison_text import as_dict
from mlcl.significance.verdict import compare_family
from mlcl.tracking.uri import pages_address

CELLS = {
    ("Hotel", "CE"): [0.71, 0.72, 0.70, 0.73, 0.71, 0.72],
    ("Hotel", "MLCL"): [0.74, 0.76, 0.73, 0.75, 0.75, 0.74],
    ("Hotel", "lost"): [None] * 6,
    ("Beer", "CE"): [0.61, None, 0.63, 0.60, 0.62, 0.61],
}
PRINTED = {("Hotel", "CE"): 71.3}


@pytest.fixture(scope="module")
def ids(store):
    """Stores a table; returns the run of each seed of each cell."""
    cells = {
        place: [value and {"metrics": {"test/accuracy": value}, "data": place[0]} for value in values]
        for place, values in CELLS.items()
    }
    return store.table("small", cells, PRINTED)


def reported(store, name, folder, **how):
    """Returns the Markdown of a table's report, and its plots."""
    report = make_report(Runs(store.tracker), name, folder, folder=folder / name, log=False, **how)
    return (folder / name / "report.md").read_text(), report.plots


@pytest.fixture(scope="module")
def text(store, ids, tmp_path_factory):
    text, plots = reported(store, "small", tmp_path_factory.mktemp("table"))
    assert plots == ("cells-accuracy",)
    return text


def test_means_and_spreads_beside_what_is_printed(text):
    values = [100 * value for value in CELLS["Hotel", "CE"]]
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    assert f"| Hotel, CE | 6 of 6 | {mean:.2f} | {spread:.2f} | 71.30 | {mean - 71.3:+.2f} | within |" in text
    beer_values = [100 * value for value in CELLS["Beer", "CE"] if value is not None]
    assert f"| Beer, CE | 5 of 6 | {statistics.fmean(beer_values):.2f} |" in text


def test_the_matrix_has_the_best_cell_of_each_data_set_in_bold(text):
    result = text.partition("## Result\n")[2].partition("\n## ")[0]
    best, other, beer = (
        f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}"
        for place in (("Hotel", "MLCL"), ("Hotel", "CE"), ("Beer", "CE"))
        for values in [[100 * value for value in CELLS[place] if value is not None]]
    )
    assert "| accuracy | CE | MLCL | lost |" in result
    assert f"| Hotel | {other} | **{best}** |  |" in result
    assert f"| Beer | {beer} |  |  |" in result


def test_cells_that_all_have_the_same_data_are_not_ranked(store, tmp_path):
    """The data sets of the table are neither its rows nor its columns."""
    cells = {
        (loss, encoder): [{"metrics": {"test/accuracy": 0.5 + place / 10}}]
        for place, (loss, encoder) in enumerate(itertools.product(("CE", "MLCL"), ("LSTM", "BERT")))
    }
    store.table("same data", cells)
    text, _ = reported(store, "same data", tmp_path)
    assert "| accuracy | LSTM | BERT |\n" in text
    assert "average rank" not in text


def test_every_seed_leads_to_its_run(text, ids):
    assert "| cell | no. 1 | no. 2 | no. 3 | no. 4 | no. 5 | no. 6 |" in text
    for (row, column, seed), id in ids.items():
        assert f"[{100 * CELLS[row, column][seed]:.2f}](http://127.0.0.1:5000/#/experiments/" in text
        assert f"/runs/{id}?workflowType=machine_learning)" in text


def test_cells_of_the_same_rows_have_verdicts(text):
    arms = (
        Arm(column, (tuple(itertools.starmap(Outcome, enumerate(CELLS["Hotel", column]))),))
        for column in ("CE", "MLCL")
    )
    (verdict,) = compare_family(
        [difference_of(*arms, "test/accuracy", "max")], "settings", metric="test/accuracy", mode="max"
    )
    low, high = verdict.interval
    columns = (
        f"| {verdict.difference:+.4f} | {low:+.4f} to {high:+.4f} | 95 % | 100% | 0% | {verdict.answer} |"
    )
    verdicts = text.partition("## Verdicts\n")[2].partition("\n## ")[0]
    assert f"| Hotel | test/accuracy | MLCL | CE {columns}" in verdicts
    assert "| Beer | " not in verdicts  # no other cell has these data, so there is no comparison
    sentence = "Hotel: MLCL is better than CE: test/accuracy 0.7450 against 0.7150, "
    assert sentence in verdicts
    assert sentence in text.partition("## Result\n")[2].partition("\n## ")[0]


def test_cells_are_compared_with_the_control_and_corrected_within_their_data(store, tmp_path):
    columns = [f"set{j}" for j in range(3)]
    cells = {
        (m, column): [
            {"metrics": {"test/accuracy": 0.5 + (k + (seed * (k + 2) + j) % 5) / 100}, "data": column}
            for seed in range(6)
        ]
        for k, m in enumerate("abc")
        for j, column in enumerate(columns)
    }
    store.table("controlled", cells, control="b")
    text = reported(store, "controlled", tmp_path)[0].partition("## Verdicts\n")[2].partition("\n## ")[0]
    for column in columns:
        lines = [line for line in text.splitlines() if line.startswith(f"| {column} | test/accuracy |")]
        assert [line.split(" | ")[2:4] for line in lines] == [["a", "b"], ["c", "b"]]
        assert "97.5 %" in "".join(lines)
    assert text.count("corrected for 2 comparisons") == 6


def test_a_table_that_is_not_written_yet(store, tmp_path):
    tags = {"mlcl.name": "young", "mlcl.id": "mlcl-young", "mlcl.kind": "table"}
    store.add("small", name="young", tags=tags)
    with pytest.raises(UserError, match=r"key table\.json: the run has no such artifact"):
        make_report(Runs(store.tracker), "young", tmp_path)
    assert not (tmp_path / "reports").exists()
    runs = Runs(store.tracker)
    (runs.home / "tables/mlcl-young").mkdir(parents=True)  # as a kill before the first write leaves it
    with pytest.raises(UserError, match=r"no results yet; .*after a kill, run the same command again"):
        make_report(runs, "young", tmp_path)
    with pytest.raises(UserError, match=r"no results yet; .*after a kill, run the same command again"):
        find_settings(runs, ["young"])
    with pytest.raises(UserError, match="of a table with results"):
        find_settings(runs, ["Row, Column"])


def test_methods_ranked_over_data_sets_have_a_section_with_the_diagram(store, tmp_path):
    figures = {(m, f"set{j}"): {0: 50.0 + k + j} for k, m in enumerate("abc") for j in range(3)}
    comparison = compare_methods(
        "accuracy", figures, "abc", ["set0", "set1", "set2"], higher=True, control="a"
    )
    unranked_metric = {"metric": "macro-F1", "sentences": ["macro-F1 is not ranked."]}
    cells = {
        place: [{"metrics": {"test/accuracy": v[0] / 100}, "data": place[1]}] for place, v in figures.items()
    }
    store.table("ranked", cells, ranks=(as_dict(comparison), unranked_metric))
    text, plots = reported(store, "ranked", tmp_path)
    assert "ranks-accuracy" in plots
    assert "| accuracy | set0 | set1 | set2 | average rank |" in text
    plain_text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    assert "| c | **52.00** | **53.00** | **54.00** | **1.00** |" in plain_text
    assert "## accuracy over data sets\n\naccuracy of 3 methods over 3 data sets" in text
    assert "| c | 1.00 | +2.00 |" in text
    assert "## macro-F1 over data sets\n\nmacro-F1 is not ranked." in text
    table = (tmp_path / "ranked" / "plots" / "ranks-accuracy.csv").read_text()
    assert table.splitlines() == ["method,average rank", "c,1.0", "b,2.0", "a,3.0"]


def test_a_tuned_cell_shows_its_search_also_where_mlflow_lacks_its_runs(store, tmp_path):
    search = SearchResult("val/accuracy", "max", {"COMPLETE": 4, "PRUNED": 1}, 0.51, 0.63, 0.6)
    tuned_fields = {"search": search, "settings": {"train.lr": 0.00312345}}
    runs = [{"metrics": {"test/accuracy": value}} for value in (0.7, 0.72)]
    cells = {("Cold", "All"): runs, ("Warm", "All"): runs}
    ids = store.table("tuned", cells, of_cells={("Warm", "All"): tuned_fields})
    row = "| Warm, All | val/accuracy (max) | 4 COMPLETE, 1 PRUNED | 0.5100 | 0.6300 | 0.6000 | 75% | "
    for lost in (False, True):
        for id in ids.values() if lost else ():
            store.client.delete_run(id)
        text, _ = reported(store, "tuned", tmp_path)
        section = text.partition("## Searches")[2].partition("\n## ")[0]
        assert row + "train.lr=0.003123 |" in section
        assert "Cold" not in section
        # The cells saw the same rows, so they are compared even if their runs are gone.
        assert "| All | test/accuracy | Warm | Cold | +0.0000 |" in text
        assert ("no run is complete" in text) == lost


@pytest.mark.parametrize(
    ("uri", "server"),
    [
        ("sqlite:////a/mlflow.db", "http://127.0.0.1:5000"),
        ("postgresql://me:secret@db/mlflow", "http://127.0.0.1:5000"),
        ("https://me:secret@lab.example:8443/mlflow/?token=secret", "https://lab.example:8443/mlflow"),
    ],
)
def test_no_login_in_a_link(uri, server):
    assert pages_address(uri) == server
