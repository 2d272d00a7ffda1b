"""Tests of the check of a cluster: its measurements on a node and the problems that it reports."""

import json
import sys
from contextlib import contextmanager, redirect_stdout

import pytest
import ray
from commands import mlcl
from ray_jobs import enter_workdir

from mlcl.cli import cluster_check as command
from mlcl.service.ray import cluster_check

GOOD = {"python": "3.11.9", "torch": "2.15.0", "ray": "2.60.0", "mlcl": "1", "skew_s": 0.01, "unusable": ""}


@pytest.mark.parametrize(
    ("second", "problems"),
    [
        ({}, []),
        ({"torch": "2.14.0"}, ["torch 2.15.0, but 2.14.0 on b"]),
        ({"skew_s": -2.0}, ["b: its clock differs by -2.0 s"]),
        ({"unusable": "driver 470"}, ["b: PyTorch cannot use its GPU: driver 470"]),
    ],
)
def test_what_is_a_problem(second, problems):
    rows = [{"node": "a", **GOOD}, {"node": "b", **GOOD, **second}, {"node": "c"}]
    assert cluster_check.problems_of(rows) == problems


@pytest.mark.parametrize(("problems", "status"), [([], 0), (["b: its clock differs by 2.0 s"], 3)])
def test_the_table_has_a_row_for_each_node(tmp_path, monkeypatch, problems, status):
    rows = [{"node": "10.0.0.1", **GOOD, "write_mb_s": 91.5}, {"node": "10.0.0.2"}]
    monkeypatch.setattr(cluster_check, "check_cluster", lambda _: (rows, list(problems)))
    monkeypatch.setattr("mlcl.service.ray.session.ray_session", nothing)
    answer = mlcl("cluster-check", "--home", tmp_path)
    assert (answer.status, "91.5" in answer.out, "10.0.0.2" in answer.out) == (status, True, True)
    assert answer.err.splitlines() == problems
    assert mlcl("cluster-check", "--home", tmp_path, "--json").json == {"nodes": rows, "problems": problems}


@contextmanager
def nothing(*_, **__):
    """A session without Ray, in which standard output goes to standard error as in a real one."""
    with redirect_stdout(sys.stderr):
        yield


def test_it_is_submitted_as_a_job_and_followed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cluster = enter_workdir(monkeypatch)
    lab = {"ray": {"address": "http://head:8265"}, "storage": "/mnt/lab"}
    (tmp_path / "lab.yaml").write_text(json.dumps(lab))
    answer = mlcl("submit", "--check", "--cluster", "lab.yaml")
    ((_, job),) = cluster.jobs.items()
    assert (answer.status, job.entrypoint.split()[3:]) == (0, ["cluster-check"])
    assert "its end" in answer.out
    for words, problem in ((("run", "job.yaml"), "takes no command"), (("--slice", "losses"), "not a clone")):
        assert problem in mlcl("submit", "--check", "--cluster", "lab.yaml", *words).err
    benchmark = tmp_path / command.GPU_BENCHMARK
    benchmark.parent.mkdir()
    benchmark.touch()
    plan = mlcl("submit", "--check", "--slice", "losses", "--dry-run", "--json", "--cluster", "lab.yaml").json
    assert plan["command"].endswith("cluster-check --slice losses --json")


@pytest.mark.slow
def test_a_node_is_measured(tmp_path):
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        (row,), problems = cluster_check.check_cluster(tmp_path)
    finally:
        ray.shutdown()
    assert (problems, abs(row["skew_s"]) < 0.5, row["ray"]) == ([], True, ray.__version__)
    assert min(row["write_mb_s"], row["read_mb_s"], row["free_gib"]) > 0
    assert not any(tmp_path.iterdir())
