"""Tests of a sweep whose space changes, and of a sweep that begins with the trials of another sweep."""

import pytest
from builders import text_dataset, tiny_job
from optuna.trial import TrialState

from mlcl.errors import UserError
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.arms import CONTROL
from mlcl.service.search.plan_checks import plan_sweep
from mlcl.store import RunFolders
from mlcl.tracking import State

SEARCH = "search: {scheduler: none}"
WIDE = f"space: {{objective.heads.detail.temperature: {{log_float: [0.05, 1.0]}}}}\n{SEARCH}"
NARROW = f"space: {{objective.heads.detail.temperature: {{log_float: [0.3, 1.0]}}}}\n{SEARCH}"
FREE = f"space: {{train.lr: {{log_float: [0.001, 0.1]}}, evaluation.knn.k: {{choice: [1, 3]}}}}\n{SEARCH}"
NAME = "objective.heads.detail.temperature"


def temperature(entry):
    return entry.settings[NAME]


def test_a_changed_space_keeps_what_fits_and_says_what_does_not(world, job):
    world.formula.fails = lambda _job, epoch: len(world.ledger.trials()) == 5 and epoch == 2
    world.run(world.plan(job, WIDE, trials=8))
    old_trials = world.ledger.trials()
    report = world.run(world.plan(job, NARROW, trials=3))
    ledger, study = world.ledger, world.study
    first_version, second_version = ledger.versions()
    assert (first_version.number, second_version.number) == (0, 1)
    fitting_trials = [
        entry for entry in old_trials if entry.state is State.COMPLETE and temperature(entry) >= 0.3
    ]
    assert 0 < len(fitting_trials) < 7
    assert list(second_version.kept) == [entry.key for entry in fitting_trials]
    assert second_version.kept.keys() | second_version.dropped.keys() == {entry.key for entry in old_trials}
    for entry in old_trials:
        if entry.state is State.FAILED:
            assert second_version.dropped[entry.key] == "is FAILED"
        elif entry not in fitting_trials:
            assert "the space has 0.3 to 1" in second_version.dropped[entry.key]
    for entry in fitting_trials:
        study_trial = study.trials[list(second_version.kept).index(entry.key)]
        assert (study_trial.state, study_trial.value) == (TrialState.COMPLETE, entry.score)
        assert study_trial.params[NAME] == pytest.approx(temperature(entry))
        assert study_trial.user_attrs["from"] == entry.key
    assert len(study.trials) == len(fitting_trials) + 3
    assert [trial.key for trial in report.trials] == [entry.key for entry in fitting_trials] + [
        f"trial-{number:04d}" for number in (8, 9, 10)
    ]
    note = next(event.text for event in world.events if "taken over" in event.text)
    assert f"{len(fitting_trials)} earlier trials fit the space" in note
    assert "is FAILED" in note
    assert {"space.yaml", "space-1.yaml"} <= world.everything()["logs"]["SWEEP"]["texts"].keys()


def test_the_same_space_again_is_the_same_version(world, job):
    world.run(world.plan(job, WIDE, trials=2))
    world.run(world.plan(job, WIDE + "\n# a word", trials=3))
    assert len(world.ledger.versions()) == 1


def test_the_best_so_far_of_the_sweeps_run_goes_on_over_spaces(world, job):
    world.run(world.plan(job, WIDE, trials=4))
    world.run(world.plan(job, NARROW, trials=2))
    points = world.everything()["logs"]["SWEEP"]["points"]
    steps = [int(point.split()[1]) for point in points if point.startswith("sweep/best ")]
    assert steps == [1, 2, 3, 4, 5, 6]
    best = max(trial.score for trial in world.ledger.counted_trials())
    assert points["sweep/best 6"] == best
    assert points["score 6"] == best


def test_a_sweep_begins_with_another_ones_trials(world, job):
    earlier_report = world.run(world.plan(job, WIDE, trials=4, name="before"))
    plan = world.plan(job, NARROW, trials=2, warm_start="before")
    report = world.run(plan)
    (version,) = world.ledger.versions()
    assert version.warm == (earlier_report.id,)
    assert {key.split("/")[0] for key in (*version.kept, *version.dropped)} == {earlier_report.id}
    kept_trials = [trial for trial in earlier_report.trials if trial.settings[NAME] >= 0.3]
    assert {key.split("/")[1] for key in version.kept} == {trial.key for trial in kept_trials}
    assert len(world.study.trials) == len(kept_trials) + 2
    assert len(report.trials) == 2  # the other trials belong to the other sweep
    world.run(world.plan(job, NARROW, trials=3))
    assert len(world.ledger.versions()) == 1  # the trials that were taken over stay


def test_each_search_begins_with_the_trials_of_the_other_sweeps_search_with_its_number(world, job):
    shared_options = {"seeds": 3, "searches": 3}
    before_options, after_options = (
        {"trials": 6, "name": "before"} | shared_options,
        {"trials": 3, "name": "after"} | shared_options,
    )
    plans = (
        world.plan(job, WIDE, **before_options),
        world.plan(job, NARROW, **after_options, warm_start="before"),
    )
    for plan in plans:
        world.run(plan)
    before, after = (Ledger(RunFolders(world.home, "sweeps").find_named(plan.name).path) for plan in plans)
    searches = [
        (other_scope, own_scope)
        for other_scope, own_scope in zip(before.searches, after.searches, strict=True)
        if not own_scope.startswith(CONTROL)
    ]
    assert len(searches) == 3
    for other_scope, own_scope in searches:
        version = after.versions(own_scope)[-1]
        trial_keys = {f"{before.head['id']}/{trial.key}" for trial in before.trials(scope=other_scope)}
        assert len(trial_keys) == 2
        assert trial_keys == version.kept.keys() | version.dropped.keys()


def test_equal_settings_of_two_sweeps_are_two_trials(world, job):
    first_report = world.run(world.plan(job, WIDE, trials=1, name="one"))
    other_job = tiny_job(job.data.path, "train.seed=7")
    second_report = world.run(world.plan(other_job, WIDE, trials=1, name="two"))
    world.run(world.plan(job, WIDE, trials=1, name="three", warm_start="one"))
    world.run(world.plan(job, WIDE, trials=1, name="three", warm_start="two"))
    ledger = Ledger(RunFolders(world.home, "sweeps").find_named("three").path)
    assert ledger.versions()[-1].warm == (first_report.id, second_report.id)
    assert len(ledger.versions()[-1].kept) == 3


@pytest.mark.parametrize("why", ["fingerprint", "scores", "no such sweep"])
def test_a_warm_start_that_cannot_be_leaves_nothing_behind(world, job, tmp_path, why):
    data = text_dataset(tmp_path / "other", seed=1) if why == "fingerprint" else job.data.path
    text = FREE if why == "scores" else WIDE
    world.run(world.plan(tiny_job(data), text, trials=1, name="before"))
    name = "unknown" if why == "no such sweep" else "before"
    with pytest.raises(UserError, match=f"--warm-start.*{why}|{why}.*{name}"):
        world.run(world.plan(job, WIDE, trials=1, warm_start=name))
    assert [record.name for _, record in RunFolders(world.home, "sweeps").records()] == ["before"]


def test_a_sweep_is_no_warm_start_of_itself(world, job):
    world.run(world.plan(job, WIDE, trials=1))
    for command in (world.run, lambda plan: plan_sweep(plan, world.home)):
        with pytest.raises(UserError, match="--warm-start: a sweep has its own trials already"):
            command(world.plan(job, WIDE, trials=2, warm_start="sweep"))
    assert plan_sweep(world.plan(job, WIDE, warm_start="sweep", fresh=True), world.home)


EVERY = f"space: {{{NAME}: {{choice: [0.1, 0.2]}}}}\nsearch: {{sampler: brute_force, scheduler: none}}"


@pytest.mark.parametrize("text", [EVERY, "space: {evaluation.knn.k: {choice: [1, 3]}}"])
def test_a_search_of_every_setting_takes_no_warm_start(world, job, text):
    world.run(world.plan(job, text, name="before"))
    for command in (world.run, lambda plan: plan_sweep(plan, world.home)):
        with pytest.raises(UserError, match="--warm-start: a search of every setting of its space"):
            command(world.plan(job, text, warm_start="before"))
    assert world.run(world.plan(job, text)).state is State.COMPLETE


def test_other_values_of_the_grid_are_other_scores(world, job):
    world.run(world.plan(job, FREE, trials=2))
    world.run(world.plan(job, FREE.replace("[1, 3]", "[1, 3, 5]"), trials=1))
    drop_reasons = world.ledger.versions()[1].dropped
    assert set(drop_reasons.values()) == {"was scored over other k, lambda or temperatures"}


def test_the_job_as_written_goes_first_where_the_space_has_it(world, job):
    world.run(world.plan(job, WIDE, trials=2))
    assert temperature(world.ledger.trials()[0]) == job.objective.heads["detail"].temperature
    world.run(world.plan(job, NARROW, trials=2))
    assert all(0.3 <= temperature(trial) <= 1 for trial in world.ledger.trials(1))


@pytest.mark.parametrize(("metric", "kept"), [("knn/val/accuracy", 0), ("val/accuracy", 2)])
def test_a_score_of_other_neighbours_is_no_score_of_these(world, tiny, metric, kept):
    job_k1, job_k3 = (tiny_job(tiny, f"evaluation.metric={metric}", f"evaluation.knn.k={k}") for k in (1, 3))
    world.run(world.plan(job_k1, WIDE, trials=2, name="before"))
    world.run(world.plan(job_k3, WIDE, trials=1, warm_start="before"))
    (version,) = Ledger(RunFolders(world.home, "sweeps").find_named("sweep").path).versions()
    assert len(version.kept) == kept
    assert set(version.dropped.values()) <= {"was scored over other k, lambda or temperatures"}
