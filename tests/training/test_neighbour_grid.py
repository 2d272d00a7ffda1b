"""Tests of the choice of neighbours by the mean over trainings, against a loop over all settings."""

import itertools
import math
from statistics import fmean

import numpy as np
import pytest

from mlcl.config import KnnConfig
from mlcl.results.knn_scores import knn_scores
from mlcl.training.neighbour_grid import AXES, VALUES, best_mean, read_neighbours, write_neighbours

AT = {"k": [1, 3, 5], "lambda": [0.0, 0.5, 1.0], "temperature": [0.1, 1.0]}
FIELDS = [("k", np.int64), ("lambda", np.float64), ("temperature", np.float64)]


def table(rng, ks=(1, 3, 5), metric="accuracy"):
    """Returns a table of `search` whose metric has few values with exact means, so that ties occur."""
    points = list(itertools.product(ks, AT["lambda"], AT["temperature"]))
    values = rng.integers(0, 5, len(points)) / 8
    return np.array(
        [(*point, value) for point, value in zip(points, values, strict=True)],
        dtype=[*FIELDS, (metric, np.float64)],
    )


def through_a_file(found, folder):
    write_neighbours(folder, found)
    return read_neighbours(folder)


def oracle(tables, sign):
    """Returns the first of the settings with the best mean, among those that all tables have."""
    scores = [{row.item()[:3]: round(row.item()[3], 7) for row in grid} for grid in tables]
    shared_points = sorted(set.intersection(*map(set, scores)))
    return max(shared_points, key=lambda point: sign * fmean(table_scores[point] for table_scores in scores))


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_best_mean_is_that_of_a_loop(tmp_path, mode):
    rng = np.random.default_rng(0)
    for _ in range(20):
        tables = [table(rng), table(rng), table(rng, (1, 3, 4))]
        setting, values = best_mean([through_a_file(grid, tmp_path) for grid in tables], mode)
        point = oracle(tables, 1 if mode == "max" else -1)
        assert (setting.k, setting.lambda_, setting.temperature) == point
        expected = [next(row.item()[3] for row in grid if row.item()[:3] == point) for grid in tables]
        assert values == pytest.approx(expected, abs=1e-7)


def test_it_is_that_of_stored_embeddings(tmp_path, tiny):
    """Tests that a race, which reads stored grids, chooses as `mlcl posthoc` does from embeddings."""
    from builders import tiny_job

    rng = np.random.default_rng(1)
    job = tiny_job(tiny, *(f"evaluation.knn.grid.{axis}={values}" for axis, values in AT.items()))
    assert isinstance(job.evaluation.knn, KnnConfig)
    for _ in range(20):
        tables = [table(rng, metric="val") for _ in range(2)]
        setting, _ = best_mean([through_a_file(grid, tmp_path) for grid in tables], "max")
        grids = [
            np.array([(*row.item(), math.nan) for row in grid], [*FIELDS, ("val", float), ("test", float)])
            for grid in tables
        ]
        scores = knn_scores(grids, [job] * 2)
        best_point = scores.points.loc[scores.best, list(AXES)]
        assert (setting.k, setting.lambda_, setting.temperature) == tuple(best_point)


def test_values_that_are_no_numbers_are_never_best(tmp_path):
    points = table(np.random.default_rng(2))
    points["accuracy"][:-1] = math.nan
    grid = through_a_file(points, tmp_path)
    setting, _ = best_mean([grid, grid], "max")
    assert (setting.k, setting.lambda_, setting.temperature) == (5, 1.0, 1.0)
    points["accuracy"] = math.nan
    assert best_mean([through_a_file(points, tmp_path)], "max") is None
    assert best_mean([grid, {}], "max") is None
    assert best_mean([], "max") is None


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("values", [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1)])
def test_of_means_that_differ_by_rounding_the_smallest_k_wins(mode, values):
    axes = {"k": [1, 3], "lambda": [0.5], "temperature": [1.0]}
    pairs = zip(values, reversed(values), strict=True)
    setting, _ = best_mean([{**axes, VALUES: pair} for pair in pairs], mode)
    assert setting.k == 1


def test_a_training_without_a_grid_left_none(tmp_path):
    assert read_neighbours(tmp_path) == {}
    assert set(through_a_file(table(np.random.default_rng(3)), tmp_path)) == {*AXES, VALUES}
