"""Tests that settings the user asks for are checked first and tried once, after the job as written."""

import pytest
from builders import tiny_job

from mlcl.errors import UserError
from mlcl.service.search.arms import control_job
from mlcl.service.search.plan_checks import plan_sweep
from mlcl.tracking import State

DETAIL = "objective.heads.detail.temperature"
SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  train.lr: {log_float: [0.001, 0.1]}
  train.optimizer: {choice: [adamw, sgd]}
  encoder.width: {int: [4, 16]}
  train.momentum: {float: [0.5, 0.99], when: {train.optimizer: sgd}}
search: {scheduler: none, startup: 2}
"""
ONE = {DETAIL: 0.2, "train.lr": 0.03}
TWO = {"train.optimizer": "sgd", "train.momentum": 0.7, "encoder.width": 12}


def origins(world, scope=""):
    return [trial.origin for trial in world.ledger.trials(scope=scope)]


@pytest.fixture
def plan(world, tiny):
    def of(trials=5, text=SPACE, **options):
        return world.plan(tiny_job(tiny), text, trials=trials, **options)

    return of


def test_a_dry_run_counts_what_is_asked_for_beyond_the_trials(world, tiny, plan):
    sweep_plan = plan(2, seeds=2, searches=2, control=control_job(tiny_job(tiny)), try_first=[ONE, TWO, ONE])
    summary = plan_sweep(sweep_plan, world.home)["sweep"]
    # The control has no keys of heads, so only the learning rate of ONE applies to it.
    assert {arm: counts["trials"] for arm, counts in summary["trials_of_arms"].items()} == {
        "control": 6,
        "heads": 6,
    }
    assert summary["trials"] == 6
    world.run(sweep_plan)
    assert sum(entry.number is not None for entry in world.ledger.entries.values()) == 12


def test_they_are_tried_after_the_job_as_written_with_its_other_values(world, plan):
    report = world.run(plan(try_first=[ONE, TWO]))
    assert origins(world) == ["as written", "asked for", "asked for", "drawn", "drawn"]
    written_trial, first_trial, second_trial, *_ = world.ledger.trials()
    assert first_trial.settings == {**written_trial.settings, **ONE}
    assert second_trial.settings == {**written_trial.settings, **TWO}
    assert first_trial.job["train"]["lr"] == 0.03
    assert [trial.origin for trial in report.trials] == origins(world)
    attrs = world.study.trials[1].user_attrs
    assert attrs["settings"] == first_trial.settings


def test_a_job_outside_the_space_is_said_before_the_start(world, plan):
    inside_plan, outside_plan = plan(), plan(text=SPACE.replace("[0.001, 0.1]", "[0.5, 1.0]"))
    assert plan_sweep(inside_plan, world.home)["sweep"]["outside"] == ""
    reason = plan_sweep(outside_plan, world.home)["sweep"]["outside"]
    assert reason.startswith("no trial has the job as written: train.lr is 0.0")
    assert reason.endswith("0.5 to 1")


def test_a_prior_comes_after_them(world, plan, tmp_path):
    prior = tmp_path / "prior.yaml"
    prior.write_text(f"{{about: a test, points: [{{train.lr: 0.02}}, {{{DETAIL}: 0.2, train.lr: 0.03}}]}}")
    text = SPACE.replace("search: {", f"search: {{prior: {prior}, ")
    world.run(plan(text=text, try_first=[ONE]))
    assert origins(world) == ["as written", "asked for", "prior", "drawn", "drawn"]


def test_a_prior_comes_after_those_of_an_earlier_command(world, plan, tmp_path):
    prior = tmp_path / "prior.yaml"
    prior.write_text("{about: a test, points: [{train.lr: 0.02}]}")
    text = SPACE.replace("search: {", f"search: {{prior: {prior}, ")
    world.run(plan(3, text=text, try_first=[ONE, TWO]))
    world.run(plan(5, text=text))
    assert origins(world) == ["as written", "asked for", "asked for", "prior", "drawn"]


def test_a_command_that_goes_on_trains_none_twice_and_takes_new_ones(world, plan):
    sweep_plan = plan(4, try_first=[ONE, TWO])
    world.stop_when(lambda _job, epoch: (len(world.ledger.trials()), epoch) == (2, 2))
    assert world.run(sweep_plan).state is State.STOPPED
    assert origins(world) == ["as written", "asked for"]
    assert world.run(sweep_plan).state is State.COMPLETE
    assert origins(world) == ["as written", "asked for", "asked for", "drawn"]
    trained_epochs = list(world.formula.trained)
    world.run(sweep_plan)
    assert world.formula.trained == trained_epochs
    # A setting that is requested later is trained although the trials are used up.
    world.run(plan(4, try_first=[TWO, {"train.lr": 0.05}]))
    assert origins(world) == ["as written", "asked for", "asked for", "drawn", "asked for"]
    assert {key for key, _ in world.formula.trained[len(trained_epochs) :]} == {"trial-0004"}
    world.run(plan(6))
    assert origins(world)[5:] == ["drawn"]


def test_killed_anywhere_they_are_those_of_an_unbroken_sweep(world, plan):
    for trials in (1, 2, 3):
        world.kill_when(lambda _job, epoch, at=trials: (len(world.ledger.trials()), epoch) == (at, 1))
        assert world.killed(plan(try_first=[ONE, TWO]))
    world.run(plan(try_first=[ONE, TWO]))
    assert origins(world) == ["as written", "asked for", "asked for", "drawn", "drawn"]
    assert len({key for key, _ in world.formula.trained}) == 5


def test_a_changed_space_keeps_what_was_trained(world, plan):
    world.run(plan(3, try_first=[ONE]))
    world.run(plan(3, SPACE.replace("[4, 16]", "[4, 24]"), try_first=[ONE, {"encoder.width": 20}]))
    assert origins(world)[:3] == ["as written", "asked for", "drawn"]
    assert origins(world)[3] == "asked for"
    assert world.ledger.trials()[3].settings["encoder.width"] == 20
    assert [trial.settings.get("train.lr") for trial in world.ledger.trials()].count(0.03) == 1


def test_every_search_of_every_arm_tries_what_it_has_of_them(world, plan, tiny):
    world.run(plan(6, seeds=2, searches=2, control=control_job(tiny_job(tiny)), try_first=[ONE]))
    assert len(world.ledger.searches) == 4
    for scope in world.ledger.searches:
        (requested_trial,) = (
            trial for trial in world.ledger.trials(scope=scope) if trial.origin == "asked for"
        )
        expected = {"train.lr": 0.03} if scope.startswith("control") else ONE
        assert {key: requested_trial.settings.get(key) for key in ONE} == {DETAIL: None, **expected}


def test_a_grid_has_them_first_and_each_point_once(world, plan):
    text = """
    space: {train.optimizer: {choice: [adamw, sgd]}, encoder.width: {choice: [4, 8, 16]}}
    search: {sampler: brute_force, scheduler: none}
    """
    world.run(plan(20, text, try_first=[{"train.optimizer": "sgd", "encoder.width": 16}]))
    trials = world.ledger.trials()
    assert [trial.origin for trial in trials[:2]] == ["as written", "asked for"]
    assert len({str(trial.params) for trial in trials}) == len(trials) == 6


def test_weights_keep_their_digits(world, plan):
    weights = {"objective.heads.detail.weight": 0.1, "objective.heads.topic.weight": 0.3}
    text = "space: {objective.heads.*.weight: {simplex: {total: [0.2, 0.6]}}}\nsearch: {scheduler: none}"
    world.run(plan(2, text, try_first=[weights]))
    assert world.ledger.trials()[1].settings == weights


REFUSED = [
    (
        {"train.learning_rate": 0.1},
        r"^--try: is no key of the space; did you mean .*found: train\.learning_rate",
    ),
    ({"train.epochs": 9}, r"--try: is no key of the space.*found: train\.epochs; allowed: .*train\.lr"),
    ({"evaluation.knn.k": 3}, r"--try evaluation\.knn\.k: is answered after training"),
    (
        {"train.lr": 5.0},
        r"--try: the space does not have this.*train\.lr is 5\.0, the space has 0\.001 to 0\.1",
    ),
    ({"train.lr": "fast"}, r"--try train\.lr: input should be a valid number.*found: fast"),
    ({"train.lr": True}, r"--try train\.lr: needs a number"),
    ({"encoder.width": 8.5}, r"--try encoder\.width: input should be a valid integer"),
    ({"train.optimizer": "adam"}, r"train\.optimizer is adam, the space has \['adamw', 'sgd'\]"),
    (
        {"train.momentum": 0.6},
        r"train\.momentum is 0\.6, the swept job has 0\.9; found: train\.momentum=0\.6",
    ),
    ({}, "--try: sets no key"),
]


@pytest.mark.parametrize(("setting", "problem"), REFUSED, ids=[str(setting) for setting, _ in REFUSED])
def test_what_the_space_does_not_have_is_refused_before_anything_starts(world, plan, setting, problem):
    for command in (world.run, lambda sweep_plan: plan_sweep(sweep_plan, world.home)):
        with pytest.raises(UserError, match=problem.replace("^--try", "key --try")) as error:
            command(plan(try_first=[ONE, setting]))
        assert "\n" not in error.value.line()
    assert not list(world.home.glob("sweeps/*"))
