"""Tests of plots of a table's embeddings: which cells are drawn together, and which rows each seed saw."""

import statistics

import pandas as pd
import pytest
from stored_runs import trained
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.evaluation import Setting
from mlcl.report.embedding_plots import EmbeddingOptions, embedding_plots
from mlcl.report.table_plots import MOST_GROUPS, comparable_cells, group_plots
from mlcl.results.documents import read_table
from mlcl.results.posthoc import score_posthoc
from mlcl.results.runs import Runs
from mlcl.results.settings import find_settings
from mlcl.training.stored_run import StoredRun

QUICK = EmbeddingOptions(quick=True)

LOSSES = {"CE": ("objective.heads={}",), "MLCL": ()}
GRID = "evaluation.knn.grid={k: [1, 3], lambda: [0.5, 1], temperature: [1]}"
SEEDS = 2


def job_of(column, seed):
    subset = ("data.subset.n=30", "data.subset.labels=detail", f"data.subset.seed={seed}")
    return (*LOSSES[column], *subset, GRID)


def params(subset, seed=0, **more):
    rows = {"data.path": "reviews", "data.subset.n": subset, "data.subset.seed": seed}
    return {"evaluation.metric": "knn/val/accuracy", **rows, **more}


@pytest.fixture(scope="module")
def trainings(tiny, tmp_path_factory):
    """Trains each seed of each cell; a seed has a subset of its own, which is the same in all cells."""
    home = tmp_path_factory.mktemp("home")
    results = {
        (column, seed): trained(tiny, home, *job_of(column, seed), name=f"{column}{seed}", seed=seed)
        for column in LOSSES
        for seed in range(SEEDS)
    }
    assert results["CE", 0][1].train.ids == results["MLCL", 0][1].train.ids != results["CE", 1][1].train.ids
    return home, results


@pytest.fixture(scope="module")
def ids(store, trainings):
    """Stores a table of two groups of cells; only runs with 30 rows left the files that plots need."""
    results = trainings[1]
    cells = {
        ("30 rows", column): [
            {"metrics": results[column, seed][2], "params": params(30, seed)} for seed in range(SEEDS)
        ]
        for column in LOSSES
    }
    cells["60 rows", "CE"] = [{"metrics": {"test/accuracy": 0.5}, "params": params(60)}]
    ids = store.table("learnt", cells)
    for column, seed in results:
        id = ids["30 rows", column, seed]
        store.left(id, results[column, seed][0])
        for step in (1, 2):
            store.client.log_metric(id, "val/accuracy", step * 0.25 + seed * 0.1, step=step)
    return ids


@pytest.fixture(scope="module")
def drawn(store, ids, trainings):
    runs, messages = Runs(store.tracker), []
    with embedding_plots(runs, trainings[0], messages.append) as draw_embeddings:
        table = read_table(runs, runs.require_group("learnt"))
        plots, skipped = group_plots(table, draw_embeddings, runs.history)
    assert len(messages) == 1
    return {plot.name: plot for plot in plots}, dict(skipped)


def test_each_group_has_its_plots_under_names_of_its_own(drawn):
    plots, skipped = drawn
    names = "learning knn_heat knn_k knn_lambda neighbour_overlap tsne tsne_neighbours"
    assert set(plots) == {f"{name}-1" for name in names.split()}
    assert plots["tsne-1"].title == "The representation of test rows (t-SNE): 30 rows"
    assert skipped["knn_temperature: 30 rows"] == "the grid has one tau alone"
    assert skipped["learning: 60 rows"] == "fewer than two steps of it were logged"
    assert skipped["embeddings of CE: 60 rows"].startswith("0 of 1 runs left them; ")


def test_curves_are_means_over_the_seeds_of_a_cell(drawn):
    table = drawn[0]["learning-1"].table.set_index(["series", "step"])
    for column in LOSSES:
        row = table.loc[column, 2]
        assert row["val/accuracy"] == pytest.approx(0.55)
        assert row["high"] - row["val/accuracy"] == pytest.approx(statistics.stdev([0.5, 0.6]))


def test_neighbours_are_sought_in_the_rows_that_each_seed_saw(drawn, trainings):
    table = drawn[0]["knn_lambda-1"].table
    for column in LOSSES:
        curve = table[table["series"] == f"{column}, test"]
        x = next(name for name in table if name.startswith("lambda"))
        accuracies = dict(zip(curve[x], curve["accuracy"], strict=True))
        runs = [StoredRun.read(*trainings[1][column, seed][:2]) for seed in range(SEEDS)]
        run_values = [
            [run.metrics(Setting(k, 1.0, 1.0))["knn/test/accuracy"] for run in runs] for k in (1, 3)
        ]
        assert accuracies[1.0] in [pytest.approx(statistics.mean(values)) for values in run_values]


def test_pictures_are_of_the_first_seed_of_all(drawn, trainings):
    plot = drawn[0]["tsne_neighbours-1"].table
    for column in LOSSES:
        row_ids = {text.partition(":")[0] for text in plot[plot["panel"] == column]["point"]}
        train = trainings[1][column, 0][1].train.ids
        assert len(row_ids & set(train)) == len(train) == 30


def test_posthoc_of_a_cell_whose_seeds_have_subsets_of_their_own(store, ids, trainings):
    runs = Runs(store.tracker)
    (setting,) = find_settings(runs, ["30 rows, CE"])
    choice = score_posthoc(runs, [setting], trainings[0]).chosen.iloc[0]
    setting = Setting(int(choice["k"]), choice["lambda"], choice["temperature"])
    run_metrics = [StoredRun.read(*trainings[1]["CE", seed][:2]).metrics(setting) for seed in range(SEEDS)]
    assert choice["val"] == pytest.approx(
        statistics.mean(metrics["knn/val/accuracy"] for metrics in run_metrics)
    )


def test_classes_and_a_row_may_be_named(store, ids, trainings, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracker.uri)

    def report(*words):
        home = ["--home", str(trainings[0]), "--to", str(tmp_path / "it"), "--no-log"]
        return CliRunner().invoke(app, ["report", "learnt", *words, *home])

    assert report("--class", "law", "--class", "run", "--row", "test5").exit_code == 0
    points = pd.read_csv(tmp_path / "it" / "plots" / "tsne-1.csv")
    assert {kind.partition(" ")[0] for kind in points["kind"]} == {"law", "run"}
    neighbours = pd.read_csv(tmp_path / "it" / "plots" / "tsne_neighbours-1.csv")
    assert neighbours["point"].str.startswith("test5:").sum() == 2
    assert "key --class: no such class; did you mean law?" in str(report("--class", "laws").exception)
    assert "key --row: no test row has this id" in str(report("--row", "nobody").exception)
    error = report("--row", "test5", "--quick").exception
    assert "key --row: is for plots that --quick leaves out" in str(error)


def cell(accuracy, *seeds, **what):
    """Returns a cell as `Store.table` takes it, with None for a seed that is missing."""
    metrics = {"test/accuracy": accuracy}
    return [seed and {"metrics": metrics, "params": params(9, seed, **what)} for seed in seeds]


def test_groups_are_what_cells_share(store):
    topics = {"objective.classifier.labels": "topic"}
    cells = {
        ("BERT", "CE"): cell(0.5, 1, 2, 3),
        ("BERT", "a"): cell(0.6, 1, 2, 3),
        ("BERT", "b"): cell(0.9, None, 2, 3),
        ("BERT", "c"): cell(0.7, 1, 2, 3),
        ("CNN", "CE"): cell(0.5, 1, 2, 3, **topics),
        ("BERT", "topics"): cell(0.5, 1, 2, 3, **topics),
        ("CNN", "none"): [None, None, None],
    }
    ids = store.table("groups", cells)
    runs = Runs(store.tracker)
    table = read_table(runs, runs.require_group("groups"))
    groups = comparable_cells(table)
    assert [group.title for group in groups] == ["BERT", "CNN, CE and others"]
    drawn_runs = groups[0].runs_to_draw(table.higher, 3)
    assert {name: len(runs) for name, runs in drawn_runs.items()} == {"CE": 2, "a": 2, "b": 2}
    assert drawn_runs["CE"][0] == ids["BERT", "CE", 1]
    lowest_runs = groups[0].runs_to_draw({"accuracy": False}, 3)
    assert list(lowest_runs) == ["CE", "a", "b"]
    assert list(groups[1].cells) == ["CNN, CE", "BERT, topics"]


def test_more_groups_than_are_drawn(store):
    cells = {
        (f"{n} rows", "CE"): [{"metrics": {"test/accuracy": 0.5}, "params": params(n)}] for n in range(5)
    }
    store.table("many", cells)
    runs = Runs(store.tracker)
    with embedding_plots(runs, None, print, QUICK) as draw_embeddings:
        table = read_table(runs, runs.require_group("many"))
        plots, skipped = group_plots(table, draw_embeddings, runs.history)
    assert plots == []
    assert [name for name, _ in skipped if name.startswith("embeddings")] == [
        f"embeddings: {n} rows" for n in range(MOST_GROUPS)
    ]
    assert skipped[-1] == ("what was learnt: 4 rows", "at most 3 groups of cells are drawn")
