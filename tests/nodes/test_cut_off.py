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
    head, worker = cluster.head(), cluster.worker(1)
    cluster.worker(2)
    sweep = work("single")
    sweep.sweep(cluster, head)
    sweep.until("value", 40)
    processes = until(lambda: training_on(worker))
    cluster.network.cut(worker)
    cut_time = time.time()
    event = sweep.until_begun_again()
    record_property("until a trial began again", round(event["at"] - cut_time, 1))
    assert living(processes)
    (folder,) = sweep.home.glob(f"sweeps/*/trials/{event['key']}")
    before = written(folder)
    cluster.network.heal(worker)
    heal_time = time.time()
    while living(processes):
        assert written(folder) == before  # neither the old process nor the new one writes
        time.sleep(0.05)
    record_property("until the old process was gone", round(time.time() - heal_time, 1))
    worker.kill()
    cluster.worker(1)
    assert sweep.end() == 0, sweep.said[-3000:]
    record_property("sweep", round(sweep.seconds))
    actual, expected = unordered(sweep.trace), unordered(here("single"))
    assert actual == expected, differences(actual, expected)


def test_a_group_waits_for_the_one_that_lives_on(cluster, work, record_property):
    head, worker = cluster.head(), cluster.worker(1, cpus=2)
    run, local_run = work("group", epochs=200), work("group", "near", epochs=200)
    run.start(cluster, head, "run", "job.yaml")
    run.until_said("epoch 30/")
    processes, new_worker = training_on(worker), cluster.worker(2, cpus=2)
    assert len(processes) == 2
    cluster.network.cut(worker)
    cut_time = time.time()
    until(lambda: len(training_on(new_worker)) == 2)
    record_property("until a new group began", round(time.time() - cut_time, 1))
    assert living(processes)
    cluster.network.heal(worker)
    heal_time = time.time()
    until(lambda: not living(processes))
    record_property("until the old group was gone", round(time.time() - heal_time, 1))
    assert run.end() == 0, run.said[-3000:]
    record_property("until the end", round(time.time() - heal_time, 1))
    local_run.run_here("run", "job.yaml")
    assert run.results == local_run.results
    assert run.points == local_run.points
