"""Whatever process of a sweep is killed: the same command ends with what the sweep would have come to."""

import pytest
from e2e.kills import POINTS_OF_EACH, SEEDS, TARGETS, TRIALS, KilledSweep, moment
from e2e.traces import differences, trace

POINTS = range(POINTS_OF_EACH * len(TARGETS))
QUICK = {0, 5}
"""A worker's and a driver's: the others take minutes each."""


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, tiny):
    """Events and trace of a sweep that nobody kills."""
    with KilledSweep(tmp_path_factory.mktemp("unbroken"), tiny) as sweep:
        sweep.start()
        assert sweep.complete() == 0
        return sweep.events, trace(sweep.home, sweep.server.uri)


def test_the_unbroken_sweep_is_worth_comparing(unbroken):
    events, found = unbroken
    states = [
        value for key, value in found.items() if key.startswith("ledger: trial") and key.endswith("state")
    ]
    assert len(states) == TRIALS
    assert {"COMPLETE", "PRUNED"} == set(states)
    assert sum(count for name, count in found["mlflow: runs"].items() if name.endswith("-seed1")) == 2 * SEEDS
    assert found["models: aliases"] == {"tiny": {"best": "1"}}
    assert found["left: records"] == ["COMPLETE"]
    empty = ("running", "running in mlflow", "half files", "ray", "stop", "logs")
    assert all(found[f"left: {name}"] == [] for name in empty)
    assert len(events) > 40


@pytest.mark.parametrize(
    "point", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in POINTS]
)
def test_a_kill_changes_nothing(point, unbroken, tmp_path, tiny):
    events, expected = unbroken
    with KilledSweep(tmp_path, tiny) as sweep:
        sweep.start()
        sweep.kill(moment(point, events))
        sweep.complete()
        found = trace(sweep.home, sweep.server.uri)
    assert found == expected, differences(found, expected)
