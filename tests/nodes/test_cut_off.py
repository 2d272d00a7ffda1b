"""Tests of a node that is cut off and reconnected: its old processes must not write beside new ones."""

import time
from pathlib import Path

import pytest
from e2e.traces import differences
from nodes.commands import training_on, unordered
from patience import until

pytestmark = pytest.mark.slow


def living(processes):
    return [process for process in processes if process.is_running()]


def written(folder: Path) -> dict[str, float]:
    """Returns the time at which each file of a training was last written."""
    return {path.name: path.stat().st_mtime for path in folder.glob("*") if path.name.startswith(("c", "s"))}


def test_a_trial_waits_for_the_process_that_lives_on(cluster, work, here, record_property):
    head, lost = cluster.head(), cluster.worker(1)
    cluster.worker(2)
    sweep = work("single")
    sweep.sweep(cluster, head)
    sweep.until("value", 40)
    left_behind = until(lambda: training_on(lost))
    cluster.network.cut(lost)
    cut = time.time()
    again = sweep.until_begun_again()
    record_property("until a trial began again", round(again["at"] - cut, 1))
    assert living(left_behind)
    (folder,) = sweep.home.glob(f"sweeps/*/trials/{again['key']}")
    before = written(folder)
    cluster.network.heal(lost)
    healed = time.time()
    while living(left_behind):
        assert written(folder) == before  # neither the old process nor the new one writes
        time.sleep(0.05)
    record_property("until the old process was gone", round(time.time() - healed, 1))
    lost.kill()
    cluster.worker(1)
    assert sweep.end() == 0, sweep.said[-3000:]
    record_property("sweep", round(sweep.seconds))
    found, expected = unordered(sweep.trace), unordered(here("single"))
    assert found == expected, differences(found, expected)


def test_a_group_waits_for_the_one_that_lives_on(cluster, work, record_property):
    head, lost = cluster.head(), cluster.worker(1, cpus=2)
    run, near = work("group", epochs=200), work("group", "near", epochs=200)
    run.start(cluster, head, "run", "job.yaml")
    run.until_said("epoch 30/")
    left_behind, spare = training_on(lost), cluster.worker(2, cpus=2)
    assert len(left_behind) == 2
    cluster.network.cut(lost)
    cut = time.time()
    until(lambda: len(training_on(spare)) == 2)
    record_property("until a new group began", round(time.time() - cut, 1))
    assert living(left_behind)
    cluster.network.heal(lost)
    healed = time.time()
    until(lambda: not living(left_behind))
    record_property("until the old group was gone", round(time.time() - healed, 1))
    assert run.end() == 0, run.said[-3000:]
    record_property("until the end", round(time.time() - healed, 1))
    near.run_here("run", "job.yaml")
    assert run.results == near.results
    assert run.points == near.points
