"""Whatever process is killed: the same command ends with what the sweep or table would have come to.

`make test` kills a worker of a sweep, and then its driver; `make test-slow` each of the thirty points alone.
"""

import pytest
from e2e.kills import POINTS, SEEDS, TRIALS, KilledCommand, moment
from e2e.traces import differences, trace

WORKER, DRIVER = 0, 5
"""Points of a sweep."""


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, tiny):
    """Events and trace of a sweep and a table that nobody kills, each made when it is asked for."""
    known = {}

    def get(kind):
        if kind not in known:
            with KilledCommand(kind, tmp_path_factory.mktemp(kind), tiny) as command:
                command.start()
                assert command.complete() == 0
                known[kind] = command.events, trace(command.home, command.server.uri)
        return known[kind]

    return get


def check_left(found):
    empty = ("running", "running in mlflow", "half files", "ray", "stop", "logs")
    assert found["left: records"] == ["COMPLETE"]
    assert all(found[f"left: {name}"] == [] for name in empty)


def test_the_unbroken_sweep_is_worth_comparing(unbroken):
    events, found = unbroken("sweep")
    states = [
        value for key, value in found.items() if key.startswith("ledger: trial") and key.endswith("state")
    ]
    assert len(states) == TRIALS
    assert {"COMPLETE", "PRUNED"} == set(states)
    assert sum(count for name, count in found["mlflow: runs"].items() if name.endswith("-seed1")) == 2 * SEEDS
    assert found["models: aliases"] == {"tiny": {"best": "1"}}
    check_left(found)
    assert len(events) > 40


@pytest.mark.slow
def test_the_unbroken_table_is_worth_comparing(unbroken):
    events, found = unbroken("table")
    assert len(found["left: runs"]) == 8
    assert set(found["left: runs"].values()) == {"COMPLETE"}
    assert found["mlflow: runs"]["table"] == 1
    assert sum(found["mlflow: runs"].values()) == 9
    assert {"table: table.md", "table: table.tex", "table: table.json"} <= found.keys()
    check_left(found)
    assert len(events) > 40


def test_a_worker_and_then_the_driver_killed_change_nothing(unbroken, tmp_path, tiny):
    events, expected = unbroken("sweep")
    first, second = (moment("sweep", point, events) for point in (WORKER, DRIVER))
    assert (first.target, second.target, first.lines < second.lines) == ("worker", "driver", True)
    with KilledCommand("sweep", tmp_path, tiny) as command:
        command.start()
        command.kill(first)
        command.kill(second)
        assert command.complete() == 1
        found = trace(command.home, command.server.uri)
    assert found == expected, differences(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "point"), [(kind, point) for kind, targets in POINTS.items() for point in range(len(targets))]
)
def test_a_kill_changes_nothing(kind, point, unbroken, tmp_path, tiny):
    events, expected = unbroken(kind)
    with KilledCommand(kind, tmp_path, tiny) as command:
        command.start()
        command.kill(moment(kind, point, events))
        command.complete()
        found = trace(command.home, command.server.uri)
    assert found == expected, differences(found, expected)
