"""Tests that every slice of benchmarks/gpu.py runs, and that a call goes on where the last one stopped."""

import importlib
import json
import os
import subprocess
import sys

import pytest
import torch

SMOKE = """
import runpy, sys
sys.argv = ["gpu.py", "--smoke", "--out", sys.argv[1]]
try:
    runpy.run_path("benchmarks/gpu.py", run_name="__main__")
except SystemExit as end:
    print("exit", end.code, sorted({"mlflow", "optuna", "ray"} & sys.modules.keys()))
"""


@pytest.mark.slow
def test_every_slice_runs_in_a_small_form(root, tmp_path):
    """Runs every slice without a GPU, Ray or MLflow, to find mistakes before time on a GPU is spent."""
    paths = os.pathsep.join([str(root), str(root / "benchmarks")])
    process = subprocess.run(
        [sys.executable, "-c", SMOKE, str(tmp_path)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Nothing is left.\nexit 0 []" in process.stdout, process.stdout + process.stderr
    slice_points = {file.stem: json.loads(file.read_text())["points"] for file in tmp_path.glob("*.json")}
    assert set(slice_points) == {"tests", "losses", "images", "packing", "features", "training"}
    for name, points in slice_points.items():
        assert points
        assert (tmp_path / f"{name}.md").read_text().count("\n- ") == len(points)
    assert slice_points["losses"]["supcon bf16 B=512"]["of the gradient"] < 0.01
    assert slice_points["training"]["cifar100 mlcl resnet18"]["done"]


@pytest.fixture
def points_of(root, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(root / "benchmarks")
    points = importlib.import_module("gpu_points").Points

    def opened(seconds=60.0, device="one"):
        return points(tmp_path / "slice.json", {"device": device}, seconds, smoke=True)

    return opened


def fails():
    raise AssertionError("measured again")


def test_a_point_is_measured_once(points_of):
    points_of().measure("a", lambda: {"ms": 1.0})
    second_points = points_of()
    second_points.measure("a", fails)
    second_points.measure("b", lambda: {"ms": 2.0})
    assert points_of().points == {"a": {"ms": 1.0}, "b": {"ms": 2.0}}
    assert second_points.file.with_suffix(".md").read_text() == "slice: one\n\n- a: ms 1\n- b: ms 2\n"


def test_what_comes_too_late_is_left(points_of):
    late_points = points_of(seconds=0.0)
    late_points.measure("a", fails)
    assert (late_points.left, late_points.points) == (["a"], {})


def test_memory_that_runs_out_is_a_figure(points_of):
    def too_large():
        raise torch.OutOfMemoryError

    points = points_of()
    points.measure("a", too_large)
    assert points_of().points == {"a": {"problem": "out of memory"}}


def test_figures_of_another_device_are_not_mixed(points_of):
    points_of().measure("a", lambda: {"ms": 1.0})
    with pytest.raises(SystemExit, match=r"about \{'device': 'one'\}.*another --out"):
        points_of(device="two")
