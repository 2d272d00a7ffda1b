"""Tests that a search keeps the pruner's decisions after a kill, and draws an interrupted trial again."""

import pytest
from builders import tiny_job
from mortal import Killed
from optuna.trial import FixedTrial, TrialState
from sweep_contents import differences
from sweeps import World

from mlcl.config import dump_job, flatten
from mlcl.service.engine.engine import Engine
from mlcl.service.search.sampling import draw, start
from mlcl.tracking import State

SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  evaluation.knn.k: {choice: [1, 3]}
search: {reduction_factor: 2, startup: 2}
"""


def test_what_the_pruner_stopped_just_before_a_kill_is_closed_and_not_trained_again(world, tiny, monkeypatch):
    plan = world.plan(tiny_job(tiny), SPACE, trials=4)
    end = Engine.end

    def die(session, key, result):
        if not result:
            world.mortal.at = world.mortal.count  # the next write closes a pruned trial
        end(session, key, result)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "end", die)
        assert world.killed(plan)
    pruned_trial = world.ledger.trials()[-1]
    assert pruned_trial.state is State.RUNNING
    epoch_count = len(world.formula.trained)
    world.run(plan)
    assert world.ledger.entries[pruned_trial.key].state is State.PRUNED
    assert pruned_trial.key not in {key for key, _ in world.formula.trained[epoch_count:]}
    assert world.study.trials[-1].state is TrialState.PRUNED
    log = world.everything()["logs"][f"SWEEP.{pruned_trial.key}"]
    assert log["end"] == ["PRUNED", ""]
    assert log["points"]["score 0"] == pruned_trial.intermediate[-1][1]


@pytest.mark.parametrize("draw_to", ["half", "before the ledger has it"])
def test_a_draw_that_a_kill_cut_short_is_drawn_again(world, tiny, monkeypatch, draw_to):
    plan = world.plan(tiny_job(tiny), SPACE, trials=3)
    unbroken_world = World(world.home.parent / "whole", monkeypatch)
    unbroken_world.run(unbroken_world.plan(tiny_job(tiny), SPACE, trials=3))

    def die(space, trial):
        if trial.number == 2:
            if draw_to == "half":
                trial.suggest_float("objective.heads.detail.temperature", 0.05, 1.0, log=True)
            else:
                draw(space, trial)
            raise Killed
        return draw(space, trial)

    with monkeypatch.context() as patch:
        patch.setattr("mlcl.service.search.study.draw", die)
        with pytest.raises(Killed):
            world.run(plan)
    world.run(plan)
    assert world.everything()["study"] == unbroken_world.everything()["study"]


NUMBERS = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  train.lr: {log_float: [0.001, 0.1]}
  encoder.width: {int: [4, 16]}
search: {sampler: SAMPLER, startup: 4, scheduler: median}
"""
CHOICES = """
space:
  objective.heads.detail.temperature: {choice: [0.1, 0.2, 0.5]}
  encoder.width: {int: [4, 12]}
search: {sampler: SAMPLER, scheduler: median}
"""


@pytest.mark.parametrize("sampler", ["tpe", "gp", "cmaes", "random", "brute_force"])
def test_a_search_that_is_killed_and_stopped_draws_what_an_unbroken_one_draws(
    world, tiny, monkeypatch, sampler
):
    text = (CHOICES if sampler == "brute_force" else NUMBERS).replace("SAMPLER", sampler)
    count = 30 if sampler == "cmaes" else 14  # the second generation of CMA-ES learns from the first

    def at(trials, epoch):
        return lambda _job, current_epoch: (len(world.ledger.trials()), current_epoch) == (trials, epoch)

    for trials, epoch in ((1, 2), (6, 1), (count - 2, 1)):
        plan = world.plan(tiny_job(tiny), text, trials=count)
        world.kill_when(at(trials, epoch))
        assert world.killed(plan)
        world.stop_when(at(trials + 1, 1))
        assert world.run(plan).state is State.STOPPED
    world.run(world.plan(tiny_job(tiny), text, trials=count - 1))
    world.run(world.plan(tiny_job(tiny), text, trials=count))
    unbroken_world = World(world.home.parent / "whole", monkeypatch)
    unbroken_world.run(unbroken_world.plan(tiny_job(tiny), text, trials=count))
    for part in ("study", "ledger"):
        assert differences(world.everything()[part], unbroken_world.everything()[part]) == []


EVERY_KIND = """
space:
  objective.heads.*.weight: {simplex: {total: 1.0, with: [objective.classifier.weight]}}
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  encoder.dropout: {float: [0.1, 0.7]}
  encoder.width: {int: [4, 16]}
  objective.heads.topic.projection: {choice: [{dim: 8}, {dim: 4}]}
search: {scheduler: none}
"""


@pytest.mark.parametrize("classifier", ["remainder", 0.7])
def test_the_job_as_written_keeps_its_digits_and_is_confirmed_once(world, tiny, classifier):
    weights = ["objective.heads.detail.weight=0.1", "objective.heads.topic.weight=0.2"]
    weights += [f"objective.classifier.weight={classifier}", "objective.heads.*.temperature=0.2"]
    plan = world.plan(tiny_job(tiny, *weights), EVERY_KIND, trials=1, seeds=1)
    point = start(plan.space, flatten(dump_job(plan.search_job())))
    drawn_settings = draw(plan.space, FixedTrial(point))
    # The conversion of weights and back costs a digit.
    assert drawn_settings["objective.heads.detail.weight"] != 0.1
    world.run(plan)
    (first_trial,) = world.ledger.trials()
    assert first_trial.job == dump_job(plan.search_job())
    assert first_trial.settings["objective.heads.detail.weight"] == 0.1
    assert first_trial.settings.keys() == drawn_settings.keys()
    assert len(world.ledger.confirmations) == 1
