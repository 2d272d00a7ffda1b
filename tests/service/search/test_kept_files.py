"""Tests of the trainings of a sweep that keep their model, also after a kill."""

import json

import pytest
from builders import tiny_job

from mlcl.store import State
from mlcl.tracking import RunLog
from mlcl.training.run_files import EMBEDDINGS, MODEL, RESULT

LR = """
space: {train.lr: {log_float: [1.0e-3, 1.0e-1]}}
search: {scheduler: none, race_seeds: 2}
"""
KNN = LR.replace("space: {", "space: {evaluation.knn.k: {choice: [1, 3]}, ")
HOW = {"trials": 6, "seeds": 2, "confirm": 2}


def kept(world):
    """Returns the keys of trainings with a model and of those that logged it; checks their embeddings too."""
    folders = [world.folder / "trials" / key for key in world.ledger.entries]
    assert all((folder / MODEL).exists() == (folder / EMBEDDINGS).exists() for folder in folders)
    logged_keys = {
        folder.name
        for folder in folders
        if RunLog.attach(world.home, f"{world.folder.name}.{folder.name}").has_artifact(folder / MODEL)
    }
    return {folder.name for folder in folders if (folder / MODEL).exists()}, logged_keys


def parts(world):
    """Returns the keys of trials, races and fresh seeds; trials and fresh seeds are sorted, best first."""
    entries = list(world.ledger.entries.values())
    ranked_entries = sorted(entries, key=lambda entry: -entry.score)
    trials = [entry.key for entry in ranked_entries if entry.number is not None]
    races = [entry.key for entry in entries if "race" in entry.key]
    return trials, races, [entry.key for entry in ranked_entries if entry.key not in {*trials, *races}]


@pytest.mark.parametrize("keep", ["best", "confirmed", "all"])
def test_the_best_keep_their_model(world, tiny, keep):
    report = world.run(world.plan(tiny_job(tiny, f"tracking.keep={keep}"), LR, **HOW))
    trials, races, fresh_seeds = parts(world)
    assert (report.state, len(trials), len(races), len(fresh_seeds)) == (State.COMPLETE, 6, 4, 2)
    best_key = report.best_training.key
    entrants = set(trials[:2])
    expected = {
        "best": ({best_key, *entrants}, {best_key}),
        "confirmed": ({*fresh_seeds, *entrants}, set(fresh_seeds)),
        "all": ({*trials, *races, *fresh_seeds},) * 2,
    }
    assert best_key in fresh_seeds
    assert kept(world) == expected[keep]
    assert all((world.folder / "trials" / key / RESULT).exists() for key in world.ledger.entries)


def test_where_races_choose_the_neighbours_no_trial_keeps_its_model(world, tiny):
    job = tiny_job(tiny, "tracking.keep=best", "evaluation.knn={grid: {k: [1, 3]}}")
    report = world.run(world.plan(job, KNN, **HOW))
    # Nothing is delivered here, so the model to be registered is kept until it can be.
    registered_key = next(key for key in world.ledger.entries if key.startswith("confirm"))
    assert kept(world) == ({report.best_training.key, registered_key}, {report.best_training.key})


def test_a_search_alone_logs_its_best_trial(world, tiny):
    world.run(world.plan(tiny_job(tiny), LR, trials=6, confirm=2))
    trials, _, _ = parts(world)
    assert kept(world) == (set(trials[:2]), {trials[0]})
    world.run(world.plan(tiny_job(tiny), LR, trials=9, confirm=2))
    grown_trials, _, _ = parts(world)
    assert len(grown_trials) == 9
    assert kept(world)[0] == {*grown_trials[:2], trials[0]}


def test_a_killed_sweep_keeps_what_an_unbroken_one_keeps(world, tiny):
    plan = world.plan(tiny_job(tiny, "tracking.keep=best"), LR, **HOW)
    world.kill_when(lambda job, epoch: job.train.seed > 500 and epoch == 2)
    assert world.killed(plan)
    assert world.run(plan).state is State.COMPLETE
    trials, _, fresh_seeds = parts(world)
    assert kept(world)[0] == {fresh_seeds[0], *trials[:2]}
    assert json.loads((world.folder / "sweep.json").read_text())["state"] == "COMPLETE"


def test_a_trial_that_took_results_takes_no_place_of_a_model(world, tiny):
    text = "space: {train.lr: {choice: [0.01, 0.02, 0.03, 0.04, 0.05, 0.06]}}\nsearch: {scheduler: none}"
    world.formula.scale = lambda job: job.train.lr
    world.run(world.plan(tiny_job(tiny, "tracking.keep=best"), text, trials=30, confirm=2))
    trials = world.ledger.trials()
    best = max(trials, key=lambda trial: trial.score)
    assert any(trial.same_as == best.key for trial in trials)
    distinct_trials = sorted((trial for trial in trials if not trial.same_as), key=lambda trial: -trial.score)
    assert kept(world)[0] == {trial.key for trial in distinct_trials[:2]}


def test_where_another_search_trained_the_best_trial_the_first_of_its_race_keeps_the_model(world, tiny):
    job = tiny_job(tiny, "tracking.keep=best", "data.validation_seed=7")
    world.formula.scale = lambda trial_job: (
        (2 if 1000 < trial_job.train.seed < 2000 else 1)
        * (1.0 if trial_job.train.lr == job.train.lr else 0.9)
    )
    world.run(world.plan(job, LR, trials=12, searches=2, seeds=4, confirm=2))
    second_scope = list(world.ledger.searches)[1]
    (winner,) = [
        trial
        for trial in world.ledger.trials(scope=second_scope)
        if trial.settings["train.lr"] == job.train.lr
    ]
    assert winner.same_as
    (race,) = [
        key
        for key, confirmation in world.ledger.confirmations.items()
        if confirmation.race and confirmation.trial == winner.label
    ]
    assert world.ledger.seeds_of(race)[0].key in kept(world)[0]


def test_a_winner_whose_model_an_earlier_command_removed_has_one_of_its_race(world, tiny):
    job = tiny_job(tiny, "tracking.keep=best")
    world.formula.scale = lambda trial_job: 1 + trial_job.train.lr
    world.run(world.plan(job, LR, trials=9, confirm=1))
    world.run(world.plan(job, LR, trials=3, confirm=1, seeds=3, searches=1))
    (race,) = [
        key
        for key, confirmation in world.ledger.confirmations.items()
        if confirmation.race and confirmation.settings
    ]
    trial = next(
        trial for trial in world.ledger.trials() if trial.label == world.ledger.confirmations[race].trial
    )
    models, _ = kept(world)
    assert trial.key not in models
    assert world.ledger.seeds_of(race)[0].key in models
