"""Tests of the engine with a sweep and with a table as the source of its trainings."""

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from builders import text_dataset, tiny_job
from formula import in_process, play
from reproduced import Tables, job_tree
from sweeps import World

from mlcl.service.engine import engine
from mlcl.service.engine.budget import Account, parse_budget
from mlcl.service.engine.trial import run_trial
from mlcl.tracking import State

SPACE = "space: {objective.heads.*.temperature: {log_float: [0.05, 1.0]}}\nsearch: {scheduler: none}"


@pytest.fixture(params=["sweep", "table"])
def make(request, tmp_path, monkeypatch):
    """Returns a world, and a function that makes plans of four trainings on data under a relative path."""
    monkeypatch.chdir(tmp_path)
    text_dataset(Path("data"))
    if request.param == "sweep":
        world = World(Path("home"), monkeypatch)
        return world, lambda **options: world.plan(tiny_job(Path("data")), SPACE, trials=4, **options)
    tables = Tables(Path("home"), monkeypatch, Path("data"))
    tables.write("job", job_tree(Path("data")))
    return tables, tables.plan


def trained(world):
    return len({key for key, _ in world.formula.trained})


def test_relative_paths_mean_the_same_in_a_process_that_stands_elsewhere(make, monkeypatch, tmp_path):
    world, plan = make
    other_folder, start_folder = tmp_path / "elsewhere", Path.cwd()
    other_folder.mkdir()
    data_checks = []

    def elsewhere_run(callbacks, **_):
        while task := callbacks.next():
            last_result = {}
            callbacks.begin(task.key)
            monkeypatch.setattr(
                "ray.tune.report", lambda result, last_result=last_result: last_result.update(result)
            )
            os.chdir(other_folder)
            run_trial(task.config())
            os.chdir(start_folder)
            callbacks.end(task.key, last_result)

    monkeypatch.setattr(engine, "run_trainings", elsewhere_run)
    world.formula.before = lambda job, _epoch: data_checks.append(Path(job.data.path).is_dir())
    assert world.run(plan()).state is State.COMPLETE
    assert len(data_checks) == 16
    assert all(data_checks)


def test_a_lost_head_is_announced(make, monkeypatch):
    world, plan = make
    calls = []

    def ray_session(home, cpus, announce):
        calls.append((home, cpus))
        announce("Ray's head does not answer")
        return nullcontext()

    monkeypatch.setattr("mlcl.service.engine.command.ray_session", ray_session)
    world.run(plan())
    assert calls == [(world.home, 1)]
    assert "Ray's head does not answer" in world.notes()


def test_a_budget_ends_it_and_a_larger_one_goes_on(make, monkeypatch):
    world, plan = make
    monkeypatch.setattr(Account, "is_used_up", lambda account: trained(world) > account.budget.amount)
    report = world.run(plan(budget=parse_budget("1cpu-s")))
    assert (report.state, report.reason) == (State.BUDGET, "the budget is used up")
    assert trained(world) == 2
    assert world.run(plan(budget=parse_budget("1cpu-s"))).state is State.BUDGET
    assert trained(world) == 2
    assert world.run(plan(budget=parse_budget("9cpu-s"))).state is State.COMPLETE
    assert trained(world) == 4


def test_what_earlier_commands_spent_counts(make, monkeypatch):
    world, plan = make
    clock = [0.0]
    monkeypatch.setattr("mlcl.service.engine.ledger.now", lambda: clock[0])

    def tick(_job, _epoch):
        clock[0] += 1.0
        if trained(world) == 2:
            world.request.set()

    world.formula.before = tick
    assert world.run(plan()).state is State.STOPPED
    epoch_count = len(world.formula.trained)
    assert epoch_count > 5
    assert world.run(plan(budget=parse_budget("5cpu-s"))).state is State.BUDGET
    assert len(world.formula.trained) == epoch_count
    world.formula.before = lambda *_: None
    assert world.run(plan(budget=parse_budget("1cpu-h"))).state is State.COMPLETE


@pytest.mark.parametrize(("budget", "made"), [(None, False), (parse_budget("8cpu-h"), True)])
def test_a_forecast_is_made_where_there_is_a_budget_and_the_last_event_says_how_it_ended(make, budget, made):
    world, plan = make
    world.run(plan(budget=budget))
    assert ("forecast: " in world.notes()) == made
    expected = "table table COMPLETE" if isinstance(world, Tables) else "sweep sweep COMPLETE"
    kinds = [event.kind for event in world.events]
    last_event = [event for event in world.events if event.kind != "note"][-1]
    assert (last_event.kind, last_event.text) == ("end", expected)
    assert kinds.count("begin") == kinds.count("close") == 4


def test_a_full_disk_stops_it_and_the_same_command_goes_on(make):
    world, plan = make

    def fill(_job, _epoch):
        if trained(world) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", "checkpoint.pt")

    world.formula.before = fill
    report = world.run(plan())
    assert (report.state, "No space left on device" in report.reason) == (State.STOPPED, True)
    assert trained(world) == 3
    world.formula.before = lambda *_: None
    assert world.run(plan()).state is State.COMPLETE
    assert trained(world) == 4


def test_those_that_never_began_take_nobodys_turn(make, monkeypatch):
    """Tests that a training that is handed out again comes first, and that all others are trained too."""
    world, plan = make
    lost_keys = []

    def with_a_dead_process(callbacks, **options):
        if not lost_keys:
            lost_keys.append(callbacks.next().key)
            callbacks.on_died(lost_keys[0], "its process died")
        in_process(callbacks, **options)

    monkeypatch.setattr(engine, "run_trainings", with_a_dead_process)
    assert world.run(plan()).state is State.COMPLETE
    assert trained(world) == 4


def test_one_that_never_begins_is_given_up(make, monkeypatch):
    world, plan = make
    tried_keys = []

    def dead(callbacks, **options):
        while task := callbacks.next():
            tried_keys.append(task.key)
            if task.key == tried_keys[0]:
                callbacks.on_died(task.key, "its process died")
            else:
                callbacks.begin(task.key)
                callbacks.end(task.key, {"ended": State.FAILED, "reason": "x"})

    monkeypatch.setattr(engine, "run_trainings", dead)
    world.run(plan())
    assert tried_keys.count(tried_keys[0]) == engine.MAX_RESTARTS + 1


def test_a_note_reaches_the_user_once_however_many_trainings_have_it(make, monkeypatch):
    world, plan = make
    slow_note, labels = "rank 1 on 10.0.0.2: 3.5 times slower", []

    def noting(callbacks, **options):
        task = callbacks.next()
        callbacks.begin(task.key)
        for text in (slow_note, "out of memory", slow_note):
            callbacks.note(task.key, text)
        labels.append(callbacks._ledger.entries[task.key].label)
        callbacks.end(task.key, play(task, callbacks))
        in_process(callbacks, **options)

    monkeypatch.setattr(engine, "run_trainings", noting)
    assert world.run(plan()).state is State.COMPLETE
    for text in (slow_note, "out of memory"):
        assert world.notes().count(f"{labels[0]}: {text}") == 1


def test_it_is_said_where_no_training_begins(make, monkeypatch):
    world, plan = make
    note_counts = []

    def late(callbacks, **options):
        monkeypatch.setattr(engine, "BEAT_EVERY", -1.0)
        task = callbacks.next()
        for begins in (False, False, True, True):
            if begins:
                callbacks.begin(task.key)
            callbacks.abort()
            note_counts.append(world.notes().count(engine.NONE_BEGINS))
        callbacks.end(task.key, play(task, callbacks))
        in_process(callbacks, **options)

    monkeypatch.setattr(engine, "run_trainings", late)
    assert world.run(plan()).state is State.COMPLETE
    assert note_counts == [0, 1, 1, 1]


def test_a_stage_waits_for_the_one_before_and_all_are_one_run_of_tune(tmp_path, monkeypatch):
    world = World(tmp_path / "home", monkeypatch)
    runs = []

    def one_run(callbacks, **options):
        runs.append([callbacks.next(), callbacks.next()])
        assert callbacks.next() is None
        assert not callbacks.finished()
        for task in runs[-1]:
            callbacks.begin(task.key)
            callbacks.end(task.key, play(task, callbacks))
        in_process(callbacks, **options)

    monkeypatch.setattr(engine, "run_trainings", one_run)
    report = world.run(world.plan(tiny_job(text_dataset(tmp_path / "data")), SPACE, trials=2, seeds=2))
    assert report.state is State.COMPLETE
    stages = [event.text.partition(":")[0] for event in world.events if event.kind == "stage"]
    assert (len(runs), stages) == (1, ["search", "confirmation"])
