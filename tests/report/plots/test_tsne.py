import numpy as np
import pytest

from mlcl.report.plots.tsne import FEWEST, project


def clusters(rows, width, seed=0):
    rng = np.random.default_rng(seed)
    cluster_N = rng.integers(0, 4, rows)
    return cluster_N, 6 * rng.normal(size=(4, width))[cluster_N] + rng.normal(size=(rows, width))


def test_near_rows_stay_near():
    cluster_N, x_ND = clusters(200, 16)
    points_N2 = project(x_ND)
    distance_NN = np.linalg.norm(points_N2[:, None] - points_N2[None], axis=-1)
    np.fill_diagonal(distance_NN, np.inf)
    assert points_N2.shape == (200, 2)
    assert (cluster_N[distance_NN.argmin(axis=1)] == cluster_N).mean() > 0.98


def test_the_same_seed_gives_the_same_points():
    _, x_ND = clusters(300, 8)
    assert np.array_equal(project(x_ND, seed=3), project(x_ND, seed=3))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_scale_makes_no_difference(scale):
    _, x_ND = clusters(60, 8)
    assert np.isfinite(project(x_ND * scale)).all()


@pytest.mark.parametrize("value", [0.0, 0.1, -3e7])
def test_equal_rows_are_one_point(value):
    assert not project(np.full((20, 5), value, np.float32)).any()


@pytest.mark.parametrize("shape", [(FEWEST, 8), (30, 1), (5, 300)])
def test_few_rows_and_narrow_embeddings(shape):
    points_N2 = project(np.random.default_rng(0).normal(size=shape))
    assert points_N2.shape == (shape[0], 2)
    assert np.isfinite(points_N2).all()


def test_bad_input():
    with pytest.raises(ValueError, match="3 rows are too few"):
        project(np.zeros((FEWEST - 1, 4)))
    with pytest.raises(ValueError, match="not finite"):
        project(np.array([[0.0, np.nan]] * 9))
