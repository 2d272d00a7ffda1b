"""Tests of a sweep that asks for more than the cluster has, as with an autoscaler, and uses later nodes."""

import pytest
from nodes.commands import SWEEP, training_on
from patience import until

pytestmark = pytest.mark.slow


def test_trials_without_room_wait_for_nodes_that_come(cluster, work, here):
    head = cluster.head()
    sweep = work("single")
    sweep.start(cluster, head, *SWEEP, "--parallel", "2")
    sweep.until("open", 2)
    assert not [event for event in sweep.events if event["event"] == "value"]
    nodes = [cluster.worker(1), cluster.worker(2)]
    until(lambda: all(training_on(node) for node in nodes))
    assert sweep.end() == 0, sweep.said[-3000:]
    assert sorted(sweep.trace["ledger: order"]) == sorted(here("single")["ledger: order"])


def test_without_parallel_it_is_refused(cluster, work):
    head = cluster.head()
    sweep = work("single")
    sweep.sweep(cluster, head)
    assert sweep.end() == 2
    assert "no node has room for a trial" in sweep.said
