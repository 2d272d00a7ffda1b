"""Tests of MLflow on PostgreSQL, where one sweep loses a node, the database and MLflow's server."""

import pytest
from databases import postgres_folder
from e2e.traces import differences, trace
from nodes.commands import unordered
from nodes.stores import Store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(postgres_folder() is None, reason="needs PostgreSQL"),
]


def test_no_point_is_lost_and_none_is_there_twice(cluster, work, here, record_property):
    store = Store(cluster)
    cluster.environment["MLFLOW_TRACKING_URI"] = store.server
    head, worker = cluster.head(), cluster.worker(1)
    cluster.worker(2)
    sweep = work("single")
    sweep.sweep(cluster, head)
    sweep.until("value", 20)
    worker.kill()
    sweep.until("value", 40)
    store.kill()
    sweep.until("value", 60)
    store.start()
    cluster.worker(1)
    assert sweep.end() == 0, sweep.said[-3000:]
    if sweep.report["undelivered"]:  # the sweep ended before the store was back
        sweep.sweep(cluster, head)
        assert sweep.end() == 0, sweep.said[-3000:]
    assert sweep.report["undelivered"] == 0
    record_property("sweep", round(sweep.seconds))
    actual, expected = unordered(trace(sweep.home, store.direct)), unordered(here("single"))
    assert actual == expected, differences(actual, expected)
    record_property("points", sum(len(value) for key, value in actual.items() if " metric " in key))
