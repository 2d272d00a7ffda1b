"""Tests that the shares of benchmarks/verdicts.py are those of `compare_arms` and of equations."""

import importlib
import math

import numpy as np
import pytest

from mlcl.significance.arms import Arm, Outcome
from mlcl.significance.verdict import Conclusion, compare_arms


@pytest.fixture
def bench(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "benchmarks")
    return importlib.import_module("verdicts")


@pytest.fixture
def corner(bench):
    return bench.Corner(settings=0.7, validation=0.5, seeds=0.3, rows=1_000, modes=True)


def answers(bench, made):
    """Returns the verdict of each experiment, computed one at a time from the blocks of each training."""
    verdicts = []
    for n in range(len(made.control)):
        arms = []
        for values, own_blocks, common_blocks in zip(
            (made.control, made.heads), made.own, (0 * made.common, made.common), strict=True
        ):
            searches = []
            for s, seeds in enumerate(values[n]):
                blocks = own_blocks[n, s] + common_blocks[n]
                block_means = [
                    blocks[np.arange(len(blocks)) != b].mean() - blocks.mean() for b in range(len(blocks))
                ]
                searches.append(
                    tuple(Outcome(k, y, tuple(y + mean for mean in block_means)) for k, y in enumerate(seeds))
                )
            arms.append(Arm("heads" if arms else "control", tuple(searches)))
        verdicts.append(
            compare_arms(*arms, question="heads", metric="test/x", mode="max", margin=bench.MARGIN)
        )
    return verdicts


@pytest.mark.parametrize("nested", [False, True])
def test_the_shares_are_those_of_single_verdicts(bench, corner, nested):
    design = bench.DESIGNS[0]
    share = bench.measure(np.random.default_rng(3), 40, design, corner, nested)
    verdicts = answers(bench, bench.simulate(np.random.default_rng(3), 40, design, corner, 0.0, nested))

    assert share[0] == np.mean([verdict.interval[0] <= 0 <= verdict.interval[1] for verdict in verdicts])
    assert share[1] == np.mean([verdict.answer is Conclusion.HELPS for verdict in verdicts])
    assert share[2] == np.mean([verdict.answer is Conclusion.HURTS for verdict in verdicts])


def test_errors_without_settings_are_those_of_seeds_and_rows(bench):
    corner = bench.Corner(settings=0, validation=0, seeds=0.3, rows=10_000, modes=False)
    simulation = bench.simulate(np.random.default_rng(0), 4_000, bench.DESIGNS[0], corner, 1.0, nested=False)
    difference, _ = bench.intervals(simulation, bench.DESIGNS[0])
    own_variance = 0.4**2 / 3  # half of 0.4^2 from each arm, averaged over three searches
    rows = 0.5**2 / 10 * (1 + own_variance)

    assert difference.mean() == pytest.approx(1, abs=0.01)
    assert difference.std() == pytest.approx(math.sqrt(2 * 0.3**2 / 6 + rows), rel=0.03)


def test_nested_heads_that_found_nothing_better_are_the_control(bench):
    corner = bench.Corner(settings=2, validation=0.1, seeds=1e-9, rows=1_000, modes=False)
    simulation = bench.simulate(np.random.default_rng(0), 200, bench.DESIGNS[0], corner, 0.0, nested=True)
    equal_mask = (simulation.own[0] == simulation.own[1]).all(-1)
    heads_quality = (
        simulation.heads.mean(-1) - simulation.own[1].mean(-1) - simulation.common.mean(-1)[:, None]
    )
    quality = simulation.control.mean(-1) - simulation.own[0].mean(-1)

    assert 0.3 < equal_mask.mean() < 0.7
    assert heads_quality[equal_mask] == pytest.approx(quality[equal_mask], abs=1e-6)


def test_a_trial_wins_as_often_as_in_resamples(bench):
    ranks = np.random.default_rng(0).integers(24, size=(200_000, 24)).min(1)
    shares = np.bincount(ranks, minlength=24)[:10] / (ranks < 10).sum()

    assert bench.resampled_search.__globals__["resampled_best"](24, 10) == pytest.approx(shares, abs=0.004)


def test_it_prints_a_line_for_each_design(bench, monkeypatch, capsys, corner):
    monkeypatch.setattr("sys.argv", ["verdicts.py", "--experiments", "8", "--corners"])
    monkeypatch.setattr(bench, "corners", lambda: [corner])
    bench.main()
    lines = capsys.readouterr().out.splitlines()

    assert lines[0] == "8 experiments of each of 1 corners. Columns:"
    assert sum(line.startswith(("3 x 8, 2", "1 x 24, best 6 x 3")) for line in lines) == 4
    assert sum(line.startswith(("1 x 2, 3", "1 x 4, 3", "1 x 24, 6")) for line in lines) == 6
    assert all(design.trainings in (38, 42) for design in bench.DESIGNS)
    assert all((design.searches, design.candidates) == (1, 0) for design in bench.ONE_SEARCH)


@pytest.mark.parametrize("nested", [False, True])
def test_one_search_counts_the_error_that_is_assumed_of_searches(bench, nested):
    corner = bench.Corner(settings=2, validation=1.5, seeds=0.1, rows=10_000, modes=False)
    shares = bench.measure(np.random.default_rng(0), 200, bench.ONE_SEARCH[1], corner, nested)
    assert shares[1] + shares[2] <= 0.05
