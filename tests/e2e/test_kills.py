"""Tests that a command that is repeated after a kill has the results of one that nobody killed.

`make test-slow` kills at thirty points. `make test` kills all processes of one sweep and a worker of the next
(test_sweep.py), and simulates a kill at every write (service/engine/test_kills_at_writes.py).
"""

import pytest
from e2e.kills import POINTS, SEEDS, TRIALS, KilledCommand, moment
from e2e.traces import differences, trace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, tiny):
    """Returns a function that runs an unbroken sweep or table once, and returns its events and trace."""
    results = {}

    def get(kind):
        if kind not in results:
            with KilledCommand(kind, tmp_path_factory.mktemp(kind), tiny) as command:
                command.start()
                assert command.complete() == 0
                results[kind] = command.events, trace(command.home, command.server.uri)
        return results[kind]

    return get


def check_left(found):
    names = ("running", "running in mlflow", "half files", "ray", "stop", "logs")
    assert found["left: records"] == ["COMPLETE"]
    assert all(found[f"left: {name}"] == [] for name in names)


def test_the_unbroken_sweep_is_worth_comparing(unbroken):
    events, contents = unbroken("sweep")
    states = [
        value for key, value in contents.items() if key.startswith("ledger: trial") and key.endswith("state")
    ]
    assert len(states) == TRIALS
    assert {"COMPLETE", "PRUNED"} == set(states)
    assert (
        sum(count for name, count in contents["mlflow: runs"].items() if name.endswith("-seed1")) == 2 * SEEDS
    )
    assert contents["models: aliases"] == {"tiny": {"best": "1"}}
    check_left(contents)
    assert len(events) > 40


def test_the_unbroken_table_is_worth_comparing(unbroken):
    events, contents = unbroken("table")
    assert len(contents["left: runs"]) == 8
    assert set(contents["left: runs"].values()) == {"COMPLETE"}
    assert contents["mlflow: runs"]["table"] == 1
    assert sum(contents["mlflow: runs"].values()) == 9
    assert {"table: table.md", "table: table.tex", "table: table.json"} <= contents.keys()
    check_left(contents)
    assert len(events) > 40


@pytest.mark.parametrize(
    ("kind", "point"), [(kind, point) for kind, targets in POINTS.items() for point in range(len(targets))]
)
def test_a_kill_changes_nothing(kind, point, unbroken, tmp_path, tiny):
    events, expected = unbroken(kind)
    with KilledCommand(kind, tmp_path, tiny) as command:
        command.start()
        command.kill(moment(kind, point, events))
        command.complete()
        actual = trace(command.home, command.server.uri)
    assert actual == expected, differences(actual, expected)
