"""Settings drawn from a space: ranges, the simplex's moments, and the way back from a job to a point."""

import numpy as np
import optuna
import pytest

from mlcl.config import Choice, Float, Int, Parameter, SearchConfig, Simplex, Space
from mlcl.service.draw import draw, point_of

KEYS = tuple(f"h{i}.weight" for i in range(9))


def space(*parameters):
    return Space(parameters, {}, SearchConfig(), "val/accuracy", "max")


def samples(space, count=4000):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    return [draw(space, study.ask()) for _ in range(count)]


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def test_every_kind_stays_in_its_range():
    found = samples(
        space(
            Parameter("lr", Float(1e-4, 1e-1, log=True)),
            Parameter("k", Int(1, 5)),
            Parameter("o", Choice((None, "a", [1, 2]))),
        ),
        300,
    )
    lr = np.array([s["lr"] for s in found])
    assert 1e-4 <= lr.min() < 1e-3 < 1e-2 < lr.max() <= 1e-1
    assert {s["k"] for s in found} == {1, 2, 3, 4, 5}
    assert {repr(s["o"]) for s in found} == {"None", "'a'", "[1, 2]"}


@pytest.mark.parametrize("count", [2, 3, 9])
def test_weights_are_uniform_on_the_simplex(count):
    """Means 1/k, variances (k-1)/(k^2 (k+1)), covariances -1/(k^2 (k+1)): the flat Dirichlet's."""
    found = samples(space(Parameter("w", Simplex(KEYS[:count], 1.0, 1.0))))
    weights = np.array([[s[key] for key in KEYS[:count]] for s in found])
    assert np.allclose(weights.sum(1), 1)
    assert weights.min() >= 0
    variance = (count - 1) / (count**2 * (count + 1))
    error = 4 * np.sqrt(variance / len(weights))
    assert np.abs(weights.mean(0) - 1 / count).max() < error
    covariance = np.cov(weights.T)
    expected = np.full((count, count), -1 / (count**2 * (count + 1)))
    np.fill_diagonal(expected, variance)
    assert np.abs(covariance - expected).max() < 0.12 * variance


def test_the_total_of_a_simplex_is_uniform_in_its_range():
    found = samples(space(Parameter("w", Simplex(KEYS[:3], 0.1, 0.6))), 1000)
    totals = np.array([sum(s.values()) for s in found])
    assert 0.1 <= totals.min() < 0.12
    assert 0.58 < totals.max() <= 0.6 + 1e-12
    assert abs(totals.mean() - 0.35) < 0.02


def test_a_job_within_the_space_is_a_point_that_draws_the_job_again():
    whole = space(
        Parameter("lr", Float(1e-4, 1e-1, log=True)),
        Parameter("o", Choice(("adamw", "sgd"))),
        Parameter("w", Simplex(KEYS[:4], 0.1, 0.9)),
    )
    job = {"lr": 0.01, "o": "sgd", **dict(zip(KEYS[:4], (0.1, 0.0, 0.25, 0.2), strict=True))}
    study = optuna.create_study()
    study.enqueue_trial(point_of(whole, job))
    again = draw(whole, study.ask())
    assert again.pop("o") == job.pop("o")
    assert again == pytest.approx(job)


@pytest.mark.parametrize(
    "job",
    [
        {"lr": 1.0, "h0.weight": 0.2, "h1.weight": 0.2},
        {"lr": 0.01, "h0.weight": 0.9, "h1.weight": 0.2},
        {"lr": "adaptive", "h0.weight": 0.2, "h1.weight": 0.2},
    ],
)
def test_a_job_outside_the_space_is_no_point(job):
    outside = space(Parameter("lr", Float(1e-4, 1e-1, log=True)), Parameter("w", Simplex(KEYS[:2], 0.1, 0.6)))
    assert point_of(outside, job) is None
