"""Tests that commands lose nothing when a worker's node is lost and a new one comes later."""

import time

import pytest
from e2e.traces import differences
from nodes.commands import training_on, unordered

pytestmark = pytest.mark.slow


def test_a_sweep_of_two_trials_at_once_goes_on(cluster, work, here, record_property):
    head, worker = cluster.head(), cluster.worker(1)
    cluster.worker(2)
    sweep = work("single")
    sweep.sweep(cluster, head)
    sweep.until("value", 100)
    assert training_on(worker)
    worker.kill()
    kill_time = time.time()
    event = sweep.until("begin", 3)
    record_property("until a trial began", round(event["at"] - kill_time, 1))
    cluster.worker(1)
    assert sweep.end() == 0, sweep.said[-3000:]
    record_property("sweep", round(sweep.seconds))
    actual, expected = unordered(sweep.trace), unordered(here("single"))
    assert actual == expected, differences(actual, expected)


def test_a_sweep_of_two_workers_a_trial_waits_for_the_new_node(cluster, work, here, record_property):
    head, nodes = cluster.head(), [cluster.worker(1), cluster.worker(2)]
    sweep = work("group")
    sweep.sweep(cluster, head)
    sweep.until("value", 10, key="trial-0001")
    nodes[0].kill()
    time.sleep(10)  # a new machine takes some time
    cluster.worker(1)
    restart_time, n_events = time.time(), len(sweep.events)
    sweep.until("value", sum(event["event"] == "value" for event in sweep.events[:n_events]) + 1)
    record_property("until a rung after the new node", round(time.time() - restart_time, 1))
    assert sweep.end() == 0, sweep.said[-3000:]
    record_property("sweep", round(sweep.seconds))
    actual = sweep.trace
    assert actual == here("group"), differences(actual, here("group"))


def test_a_run_of_two_workers_waits_for_the_new_node(cluster, work, run_here, record_property):
    head, nodes = cluster.head(), [cluster.worker(1), cluster.worker(2)]
    run = work("group")
    run.start(cluster, head, "run", "job.yaml")
    run.until_said("epoch 30/")
    nodes[1].kill()
    time.sleep(10)
    cluster.worker(2)
    restart_time = time.time()
    run.until_said("resumed")
    record_property("until it went on after the new node", round(time.time() - restart_time, 1))
    assert run.end() == 0, run.said[-3000:]
    assert run.results == run_here
