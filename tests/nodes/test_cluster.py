"""Tests that a cluster of several nodes has the results of one machine."""

import pytest
from e2e.traces import differences
from nodes.commands import training_on, unordered
from patience import until

pytestmark = pytest.mark.slow


def test_who_has_another_token_is_refused(cluster, work, tmp_path):
    head = cluster.head()
    other = tmp_path / "other.token"
    other.write_text("0" * 32)
    with pytest.raises(AssertionError, match=r"(?i)token|unauthenticated|authenticat"):
        cluster.worker(1, RAY_AUTH_TOKEN_PATH=str(other))
    cluster.environment["RAY_AUTH_TOKEN_PATH"] = str(other)
    run = work("group")
    run.start(cluster, head, "run", "job.yaml")
    assert run.end() == 2
    assert "the Ray cluster refuses the token" in run.said


def test_two_workers_on_two_nodes_train_as_on_one(cluster, work, run_here):
    head, nodes = cluster.head(), [cluster.worker(1), cluster.worker(2)]
    run = work("group")
    run.start(cluster, head, "run", "job.yaml")
    until(lambda: all(training_on(node) for node in nodes))
    assert run.end() == 0, run.said[-3000:]
    assert run.results == run_here


@pytest.mark.parametrize("kind", ["single", "group"])
def test_a_sweep_over_two_nodes_is_that_of_one_machine(kind, cluster, work, here, record_property):
    head, nodes = cluster.head(), [cluster.worker(1), cluster.worker(2)]
    sweep = work(kind)
    sweep.sweep(cluster, head)
    until(lambda: all(training_on(node) for node in nodes))
    assert sweep.end() == 0, sweep.said[-3000:]
    record_property("seconds", round(sweep.seconds))
    actual, expected = unordered(sweep.trace), unordered(here(kind))
    assert actual == expected, differences(actual, expected)
