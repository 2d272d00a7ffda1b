"""Tests of curves and shared labels of finished runs, against settings evaluated alone and plain loops."""

import itertools
import statistics
from dataclasses import replace

import numpy as np
import pytest
from stored_runs import TAGS, TASKS, trained

from mlcl.config.job import KnnGrid
from mlcl.evaluation import Setting
from mlcl.report.plots.knn_plots import neighbour_plots
from mlcl.training.embeddings import setting_of
from mlcl.training.stored_run import StoredRun

GRID = "{k: [1, 3], lambda: [0, 0.5, 1], temperature: [1, 9]}"
KNN = f"evaluation.knn={{k: 5, lambda: 0.2, temperature: 2, grid: {GRID}}}"
X = {
    "knn_k": "k (neighbours)",
    "knn_lambda": "lambda (share of the neighbours in the prediction)",
    "knn_temperature": "tau (temperature of the neighbours' weights)",
}


@pytest.fixture(scope="module")
def seeds(tiny, tmp_path_factory):
    """Trains two seeds of a multi-label setting; returns their folders, and data and metrics of the first."""
    home = tmp_path_factory.mktemp("home")
    job = (*TAGS, KNN, "evaluation.threshold=0.5")
    trainings = [trained(tiny, home, *job, name=f"seed{seed}", seed=seed) for seed in (0, 1)]
    return [folder for folder, _, _ in trainings], trainings[0][1], trainings[0][2]


def plots_of(folders, job_data):
    plots, skipped, _ = neighbour_plots(folders, lambda _: job_data)
    return {plot.name: plot for plot in plots}, skipped


def rows(plot, series, x, y):
    table = plot.table[plot.table["series"] == series]
    return list(zip(table[x].tolist(), table[y].tolist(), strict=True))


def brute_force(folders, job_data, setting):
    """Returns the means on validation and on test under one setting."""
    metrics = [StoredRun.read(folder, job_data).metrics(setting) for folder in folders]
    return [
        statistics.mean(run_metrics[f"knn/{split}/micro_f1"] for run_metrics in metrics)
        for split in ("val", "test")
    ]


def best_of(folders, job_data):
    grid = job_data.job.evaluation.knn.grid
    settings = [Setting(*point) for point in itertools.product(grid.k, grid.lambda_, grid.temperature)]
    return max(settings, key=lambda setting: brute_force(folders, job_data, setting)[0])


@pytest.mark.parametrize("axis", ["k", "lambda", "temperature"])
@pytest.mark.parametrize("count", [1, 2])
def test_curves_equal_one_setting_evaluated_alone(seeds, count, axis):
    folders, job_data = seeds[0][:count], seeds[1]
    plots, skipped = plots_of({"a": folders}, job_data)
    best, job_setting = best_of(folders, job_data), setting_of(job_data.job.evaluation.knn)
    field = axis + "_" * (axis == "lambda")
    line = [replace(best, **{field: value}) for value in getattr(job_data.job.evaluation.knn.grid, field)]
    series = {"validation": (line, [0]), "test": (line, [1])}
    series |= {"best on validation": ([best], [0, 1]), "the job's own": ([job_setting], [0, 1])}
    for name, (settings, splits) in series.items():
        expected = [
            (getattr(setting, field), brute_force(folders, job_data, setting)[split])
            for split in splits
            for setting in settings
        ]
        points = rows(plots[f"knn_{axis}"], name, X[f"knn_{axis}"], "micro_f1")
        assert np.array(points) == pytest.approx(np.array(expected))
    assert skipped == []


@pytest.mark.parametrize("own", [{"k": 2, "lambda_": 0.33, "temperature": 0.7}, {"lambda_": 0.5}])
def test_runs_of_searches_with_other_parameters_are_averaged_over_the_grid(seeds, own):
    """The seeds of a table's cell may come from several searches, each of which picked its own parameters."""
    folders, job_data, _ = seeds
    knn = job_data.job.evaluation.knn
    evaluation = job_data.job.evaluation.model_copy(update={"knn": knn.model_copy(update=own)})
    other = replace(job_data, job=job_data.job.model_copy(update={"evaluation": evaluation}))
    assert setting_of(other.job.evaluation.knn) != setting_of(knn)
    folder_data = dict(zip(folders, (job_data, other), strict=True))
    plots, skipped, words = neighbour_plots({"a": folders}, folder_data.__getitem__)
    best = best_of(folders, job_data)
    assert skipped == []
    assert words["a"] == f"k {best.k}, lambda {best.lambda_:g}, tau {best.temperature:g}"
    table = next(plot for plot in plots if plot.name == "knn_k").table
    assert "the job's own" not in set(table["series"])
    line = table[table["series"] == "validation"].set_index(X["knn_k"])["micro_f1"]
    for k in knn.grid.k:
        expected = brute_force(folders, job_data, replace(best, k=k))[0]
        assert line[k] == pytest.approx(expected)


def test_runs_without_a_common_point_have_no_curves(seeds):
    folders, job_data, _ = seeds
    knn = job_data.job.evaluation.knn
    grid = knn.grid.model_copy(update={"lambda_": [0.123]})
    other_knn = knn.model_copy(update={"grid": grid, "lambda_": 0.456})
    evaluation = job_data.job.evaluation.model_copy(update={"knn": other_knn})
    other = replace(job_data, job=job_data.job.model_copy(update={"evaluation": evaluation}))
    folder_data = dict(zip(folders, (job_data, other), strict=True))
    plots, skipped, words = neighbour_plots({"a": folders}, folder_data.__getitem__)
    assert skipped == [("curves of a", "its runs have no k-NN parameters in common")]
    assert ([plot.name for plot in plots], words) == (["neighbour_overlap"], {})


def test_the_map_has_the_best_point_and_those_within_one_standard_error(seeds):
    folders, job_data, _ = seeds
    plots, _, words = neighbour_plots({"a": folders}, lambda _: job_data)
    best, grid = best_of(folders, job_data), job_data.job.evaluation.knn.grid
    assert words["a"] == f"k {best.k}, lambda {best.lambda_:g}, tau {best.temperature:g}"
    table = next(plot for plot in plots if plot.name == "knn_heat").table
    (best_row,) = table[table["best"]].itertuples()
    assert (best_row.k, best_row[2]) == (best.k, best.lambda_)
    spreads = []
    for k, share, tau in itertools.product(grid.k, grid.lambda_, grid.temperature):
        runs, place = [StoredRun.read(f, job_data) for f in folders], Setting(k, share, tau)
        values = [run.metrics(place)["knn/val/micro_f1"] for run in runs]
        spreads.append(statistics.variance(values) / len(values))
    error = statistics.mean(spreads) ** 0.5
    for row in table.itertuples():
        mean = brute_force(folders, job_data, Setting(row.k, row[2], best.temperature))[0]
        assert row.near == (best_row.micro_f1 - mean <= error + 1e-12)


def test_bands_are_one_sample_deviation_over_seeds(seeds):
    folders, job_data, _ = seeds
    plots, _ = plots_of({"a": folders}, job_data)
    shares = [StoredRun.read(folder, job_data).overlap((1, 3)) for folder in folders]
    table = plots["neighbour_overlap"].table
    for row, values in zip(table.itertuples(index=False), zip(*shares, strict=True), strict=True):
        mean, deviation = statistics.mean(values), statistics.stdev(values)
        assert list(row[2:5]) == pytest.approx([mean, mean - deviation, mean + deviation])


def test_lambda_0_is_the_model_alone(seeds):
    folders, job_data, metrics = seeds
    plots, _ = plots_of({"a": folders[:1]}, job_data)
    points = dict(rows(plots["knn_lambda"], "test", X["knn_lambda"], "micro_f1"))
    assert points[0] == pytest.approx(metrics["test/micro_f1"])
    assert "lambda 0 is the model alone" in plots["knn_lambda"].caption


def test_settings_are_drawn_beside_each_other(seeds):
    folders, job_data, _ = seeds
    plots, skipped = plots_of(dict.fromkeys("abc", folders[:1]), job_data)
    series = list(dict.fromkeys(plots["knn_k"].table["series"]))
    assert series[:4] == ["a, validation", "a, test", "b, validation", "b, test"]
    assert set(plots["neighbour_overlap"].table["series"]) == {"a", "b", "c"}
    assert skipped == [("curves of c", "at most 2 settings are drawn beside each other")]


@pytest.mark.parametrize("task", ["single", "aspects"])
def test_other_tasks(trained_once, task):
    folder, job_data, metrics = trained_once(*TASKS[task])
    plots, skipped = plots_of({"a": [folder]}, job_data)
    assert set(plots) == {"knn_heat", "knn_k", "knn_lambda", "neighbour_overlap"}
    assert skipped == [("knn_temperature", "the grid has one tau alone")]
    points = rows(plots["knn_k"], "best on validation", X["knn_k"], "accuracy")
    best = [metrics[f"knn_best/{split}/accuracy"] for split in ("val", "test")]
    assert [y for _, y in points] == pytest.approx(best)


@pytest.mark.parametrize("knn", ["evaluation.knn=null", "evaluation.knn.grid=null"])
def test_a_run_without_a_grid_is_scored_on_the_default_one(tiny, tmp_path, knn):
    folder, job_data, _ = trained(tiny, tmp_path, knn)
    plots, _ = plots_of({"a": [folder]}, job_data)
    ks = [x for x, _ in rows(plots["knn_k"], "validation", X["knn_k"], "accuracy")]
    assert ks == [min(k, 48) for k in KnnGrid().k]
    assert ("the job's own" in set(plots["knn_k"].table["series"])) == (knn != "evaluation.knn=null")


def test_what_cannot_be_read_is_left_out_with_its_reason(seeds, tmp_path):
    folders, job_data, _ = seeds
    plots, skipped = plots_of({"gone": [tmp_path, tmp_path], "a": folders[:1]}, job_data)
    assert "knn_k" in plots
    assert skipped == [("neighbours of gone", "the run's embeddings cannot be read")]
    no_plots, skipped = plots_of({"gone": [tmp_path]}, job_data)
    assert no_plots == {}
    assert [name for name, _ in skipped] == ["neighbours of gone", "neighbour_overlap"]


def test_a_run_that_never_read_the_test_split_is_drawn_on_validation(seeds, tiny, tmp_path):
    folder, job_data, metrics = trained(tiny, tmp_path, *TAGS, KNN, "evaluation.threshold=0.5", test=False)
    plots, skipped = plots_of({"a": [folder]}, job_data)
    table = plots["knn_k"].table
    assert list(dict.fromkeys(table["series"])) == ["validation", "best on validation", "the job's own"]
    assert rows(plots["knn_k"], "the job's own", X["knn_k"], "micro_f1") == [(5, metrics["knn/val/micro_f1"])]
    assert "test" not in plots["knn_k"].caption + plots["neighbour_overlap"].caption
    shares = StoredRun.read(folder, job_data, test=False).overlap((1, 3), "validation")
    assert plots["neighbour_overlap"].table["share of shared labels"].tolist() == shares
    assert skipped == []
    # Such a run cannot be compared with a run that read the test split.
    _, skipped = plots_of({"confirmed": seeds[0], "searched": [folder]}, seeds[1])
    assert skipped == [("neighbours of searched", "the run left no embeddings of test rows")]
