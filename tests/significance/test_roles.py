"""Tests of the roles of arms by their names, and of the metrics of fitted baselines."""

import pytest

from mlcl.significance.roles import Role, figure_name


def test_roles_by_name():
    assert Role.from_names(["baseline", "control"]) == Role.BASELINE | Role.CONTROL
    with pytest.raises(KeyError, match="JUDGE"):
        Role.from_names(["judge"])


@pytest.mark.parametrize("score", ["val/f", "knn/val/f", "knn_best/val/f"])
def test_a_baseline_has_no_neighbours(score):
    assert figure_name(score, {score: 1.0, "val/f": 0.5}) == score
    assert figure_name(score, {"val/f": 0.5}) == "val/f"
