"""Tests of a head that is lost with all of its processes, and of a new one that takes its place."""

import shutil
import time

import pytest
from e2e.traces import differences
from nodes.commands import unordered
from nodes.stores import redis

pytestmark = pytest.mark.slow


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server")
def test_with_redis_a_command_elsewhere_goes_on(cluster, work, here, record_property):
    store = redis(cluster)
    head = cluster.head(**store)
    cluster.worker(1), cluster.worker(2)
    login = cluster.worker(3, cpus=0)
    sweep = work("single")
    sweep.sweep(cluster, login)
    sweep.until("value", 20)
    head.kill()
    kill_time, n_events = time.time(), len(sweep.events)
    time.sleep(20)
    record_property("events of the sweep without a head", len(sweep.events) - n_events)
    cluster.head(**store)
    record_property("seconds without a head", round(time.time() - kill_time, 1))
    assert sweep.end() == 0, sweep.said[-3000:]
    record_property("sweep", round(sweep.seconds))
    assert "does not answer" in sweep.said
    assert "answers again" in sweep.said
    actual, expected = unordered(sweep.trace), unordered(here("single"))
    assert actual == expected, differences(actual, expected)


@pytest.mark.parametrize("place", ["head", "elsewhere"])
def test_without_redis_the_same_command_goes_on(place, cluster, work, here, record_property):
    head, workers = cluster.head(), [cluster.worker(1), cluster.worker(2), cluster.worker(3, cpus=0)]
    sweep = work("single")
    sweep.sweep(cluster, head if place == "head" else workers[-1])
    sweep.until("value", 20)
    head.kill()
    kill_time = time.time()
    assert sweep.end() != 0
    record_property("until the command ended", round(time.time() - kill_time, 1))
    assert place == "head" or "the same command goes on" in sweep.said
    for host in workers:
        host.kill()
    head = cluster.head()
    cluster.worker(1), cluster.worker(2)
    sweep.start(cluster, head, "doctor", "--fix")
    sweep.end()
    assert not sweep.running, sweep.report
    sweep.sweep(cluster, head)
    assert sweep.end() == 0, sweep.said[-3000:]
    actual, expected = unordered(sweep.trace), unordered(here("single"))
    assert actual == expected, differences(actual, expected)
