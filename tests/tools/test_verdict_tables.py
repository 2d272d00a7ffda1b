"""Tests that p-values and decisions of benchmarks/verdict_tables.py are those of the product."""

import importlib

import numpy as np
import pytest

from mlcl.significance.arms import Arm, Outcome
from mlcl.significance.paired_arms import differences_of
from mlcl.significance.paired_tests import holm


@pytest.fixture
def bench(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "benchmarks")
    return importlib.import_module("verdict_tables")


@pytest.mark.parametrize("name", ["alone", "ours"])
def test_p_are_those_of_the_product(bench, name):
    values = bench.draw(np.random.default_rng(0), 20, (5, 3), "evenly .25 to 1.25", 0.5)
    p_values = bench.p_values(values)[name]
    for experiment, p in zip(values, p_values, strict=True):
        arms = [Arm(str(k), tuple((Outcome(0, float(y)),) for y in row)) for k, row in enumerate(experiment)]
        differences = differences_of(arms[0], arms[1:], "x", "max", searches=name == "ours")
        assert [difference.p for difference in differences] == pytest.approx(p)


def test_decisions_are_those_of_holm(bench):
    p = np.random.default_rng(1).uniform(size=(200, 4)) ** 4
    expected = [[value <= bench.RISK for value in holm(list(map(float, row)))] for row in p]
    assert bench.holm_rejects(p).tolist() == expected


def test_it_prints_a_line_for_each_scene(bench, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["verdict_tables.py", "--experiments", "40"])
    monkeypatch.setattr(bench, "SHAPES", ((3, 3),))
    bench.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["40 tables a line; false, and found at 2 points", "3 rows, 3 searches"]
    assert len(lines) == 2 + len(bench.SCENES)
    assert all(text in lines[2] for text in ("alone 0.", "one error 0.", "ours 0."))
