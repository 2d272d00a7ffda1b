"""Tests that a training keeps its checkpoint as long as it can be continued, and no longer."""

import json

import pytest
from builders import tiny_job
from reproduced import Tables, job_tree
from sweeps import World
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.service.engine.closing import find_checkpoints
from mlcl.store import RunFolders
from mlcl.tracking import State
from mlcl.training.checkpoint import CHECKPOINT

SPACE = """
space: {objective.heads.*.temperature: {log_float: [0.05, 1.0]}}
search: {scheduler: asha, reduction_factor: 2, startup: 1, grace: 1}
"""


def checkpoints(world):
    return {file.parent.name: file for file in world.home.glob(f"**/{CHECKPOINT}")}


def states(world):
    return {key: entry.state for key, entry in world.ledger.entries.items()}


def test_a_sweep_keeps_those_that_go_on_and_those_that_failed(tmp_path, tiny, monkeypatch):
    world = World(tmp_path / "home", monkeypatch)
    plan = world.plan(tiny_job(tiny), SPACE, trials=8, seeds=2)
    world.formula.fails = lambda _job, epoch: epoch == 2 and len(world.ledger.trials()) == 3
    world.kill_when(lambda _job, epoch: epoch == 3 and len(world.ledger.trials()) > 4)
    assert world.killed(plan)
    failed_keys = {key for key, state in states(world).items() if state is State.FAILED}
    kept_keys = checkpoints(world).keys()
    assert len(failed_keys) == 1
    assert failed_keys < kept_keys
    assert {states(world)[key] for key in kept_keys - failed_keys} == {State.RUNNING}
    world.run(plan)
    assert set(states(world).values()) == {State.COMPLETE, State.PRUNED, State.FAILED}
    assert checkpoints(world).keys() == failed_keys


def test_what_is_left_is_cleaned_away(tmp_path, tiny, monkeypatch):
    world = World(tmp_path / "home", monkeypatch)
    world.run(world.plan(tiny_job(tiny), SPACE, trials=2))
    ended_file = world.folder / "trials" / "trial-0000" / CHECKPOINT
    unknown_file = world.folder / "trials" / "trial-0099" / CHECKPOINT
    unknown_file.parent.mkdir()
    for file in (ended_file, unknown_file):
        file.write_bytes(b"1234")
    assert list(find_checkpoints(world.home)) == [(ended_file, State.COMPLETE)]
    words = ["clean", "--home", str(world.home)]
    dry_run = CliRunner().invoke(app, [*words, "--dry-run", "--json"])
    assert json.loads(dry_run.output)["bytes"] == 4
    assert ended_file.exists()
    result = CliRunner().invoke(app, words)
    assert "removed 1 entry" in result.output
    assert (ended_file.exists(), unknown_file.exists()) == (False, True)


@pytest.mark.parametrize("state", State)
def test_a_tables_run_is_gone_on_with_or_has_no_checkpoint(tmp_path, tiny, monkeypatch, state):
    tables = Tables(tmp_path / "home", monkeypatch, tiny)
    tables.write("job", job_tree(tiny))
    tables.run(tables.plan())
    assert checkpoints(tables) == {}
    folder, _ = next(RunFolders(tables.home).records())
    folder.set_state(state)
    (folder.path / CHECKPOINT).write_bytes(b"1234")
    is_over = state not in (State.RUNNING, State.STOPPED, State.BUDGET)
    assert len(list(find_checkpoints(tables.home))) == is_over
