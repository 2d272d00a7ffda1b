"""Tests that `mlcl cluster-check`, which `mlcl submit --check` runs, has a row for each host."""

import pytest

pytestmark = pytest.mark.slow


def test_every_host_is_measured(cluster, work):
    head = cluster.head()
    hosts = [cluster.worker(number) for number in (1, 2)]
    check = work("single")
    check.start(cluster, head, "cluster-check")
    assert check.end() == 0, check.said[-3000:]
    rows = {row["node"]: row for row in check.report["nodes"]}
    assert set(rows) == {host.address for host in (head, *hosts)}
    for host in hosts:
        assert rows[host.address]["all_reduce_gb_s"] > 0
        assert rows[host.address]["write_mb_s"] > 0
        assert abs(rows[host.address]["skew_s"]) < 0.5
    assert "all_reduce_gb_s" not in rows[head.address]  # nothing trains on the head
