"""Tests of commands that grow or stop a sweep, refuse a name in use, and report the sweep's state."""

import errno
import json
import math
import shutil
from contextlib import suppress
from statistics import fmean
from unittest.mock import Mock

import pytest
from builders import job_tree, text_dataset, tiny_job
from formula import in_process
from mlflow import MlflowClient
from mlflow.entities import ViewType
from mlflow.tracking._tracking_service.utils import _artifact_repos_cache
from optuna.trial import TrialState
from sweeps import AtOnce, World

from mlcl.config import load_job
from mlcl.data import Dataset
from mlcl.errors import UserError
from mlcl.results.runs import Runs
from mlcl.results.settings import find_settings
from mlcl.service.engine import command, precision
from mlcl.service.engine.budget import Account, parse_budget
from mlcl.service.export_run import model_run
from mlcl.service.search import best_model
from mlcl.service.search.arms import control_job
from mlcl.service.search.plan_checks import plan_sweep
from mlcl.service.search.sweep import run_sweep
from mlcl.tracking import RunLog, State, Tracker
from mlcl.tracking.cursor import Cursor, undelivered_logs
from mlcl.tracking.log import log_folder
from mlcl.tracking.sender import Sender

SPACE = "space: {objective.heads.*.temperature: {log_float: [0.05, 1.0]}}"
PLAIN = f"{SPACE}\nsearch: {{scheduler: none}}"
FREE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  evaluation.knn.k: {choice: [1, 3]}
  evaluation.knn.lambda: {choice: [0, 0.5]}
search: {reduction_factor: 2, startup: 2}
"""
GRID = """
space:
  objective.heads.detail.temperature: {choice: [0.1, 0.2, 0.5]}
  train.lr: {choice: [0.01, 0.02]}
search: {sampler: brute_force, scheduler: none}
"""
GOALS = """
space: {train.lr: {log_float: [0.001, 0.1]}, objective.heads.*.temperature: {log_float: [0.05, 1.0]}}
search: {scheduler: none, metric: [val/accuracy, val/macro_f1]}
"""


@pytest.fixture(scope="module")
def databases_of(tmp_path_factory):
    """Returns a function that copies a prepared store into a home, since creating tables takes long."""
    folder = tmp_path_factory.mktemp("store")
    Tracker(folder)

    def copy(home):
        home.mkdir()
        return shutil.copy(folder / "mlflow.db", home)

    return copy


def trials(world):
    return world.ledger.trials()


def states(world):
    return [trial.state for trial in trials(world)]


def log_of(world, key):
    return world.everything()["logs"][f"SWEEP.{key}".removesuffix(".")]


def test_nothing_to_do_prints_the_same_report(world, job):
    plan = world.plan(job, FREE, trials=3, seeds=2)
    first_report = world.run(plan)
    trained_epochs = list(world.formula.trained)
    second_report = world.run(plan)
    assert second_report == first_report.__class__(**{**vars(first_report), "spent": second_report.spent})
    assert world.formula.trained == trained_epochs


def test_a_sweep_that_is_stopped_and_grows_is_the_unbroken_one(world, job):
    plan = world.plan(job, PLAIN, trials=3, seeds=1)
    world.stop_when(lambda _job, epoch: len(trials(world)) == 2 and epoch == 3)
    report = world.run(plan)
    assert (report.state, states(world)) == (State.STOPPED, [State.COMPLETE, State.STOPPED])
    assert [trial.state for trial in world.study.trials] == [TrialState.COMPLETE, TrialState.WAITING]
    assert log_of(world, "trial-0001")["end"] == ["STOPPED", ""]
    stopped_trial, epoch_count = trials(world)[1], len(world.formula.trained)
    assert world.run(plan).state is State.COMPLETE
    assert world.formula.trained[epoch_count] == ("trial-0001", 4)  # the epoch after its checkpoint
    assert trials(world)[1].settings == stopped_trial.settings
    assert trials(world)[1].intermediate[: len(stopped_trial.intermediate)] == stopped_trial.intermediate
    before = world.everything()["ledger"]["entries"]
    report = world.run(world.plan(job, PLAIN, trials=6, seeds=1))
    after = world.everything()["ledger"]["entries"]
    assert (len(report.trials), {key: after[key] for key in before}) == (6, before)
    unbroken_world = World(world.home.parent / "other", world._patch)
    unbroken_world.run(unbroken_world.plan(job, PLAIN, trials=6, seeds=1))
    assert unbroken_world.everything()["study"] == world.everything()["study"]


def test_whoever_insists_on_a_stop_finds_nothing_running(world, job):
    def insist(_job, epoch):
        if len(trials(world)) == 2 and epoch == 3:
            world.formula.before = lambda _job, _epoch: None
            raise KeyboardInterrupt

    world.formula.before = insist
    plan = world.plan(job, PLAIN, trials=3)
    assert world.run(plan).state is State.STOPPED
    assert states(world) == [State.COMPLETE, State.STOPPED]
    assert all(log["end"] is not None for log in world.everything()["logs"].values())
    assert world.run(plan).state is State.COMPLETE
    assert states(world) == [State.COMPLETE] * 3


def test_the_name_is_one_sweeps(world, tmp_path):
    job = tiny_job(text_dataset(tmp_path / "data"))
    world.run(world.plan(job, SPACE))
    world.run(world.plan(job, GOALS, trials=1, name="goals"))
    before = world.ledger.head
    refused_plans = {
        "job": world.plan(tiny_job(job.data.path, "train.epochs=5"), SPACE),
        "job|data set": world.plan(tiny_job(text_dataset(tmp_path / "other", seed=1)), SPACE),
        "score": world.plan(job, GOALS),
        "score|set of free keys": world.plan(job, FREE),
        "scheduler": world.plan(job, PLAIN),
        "metric to prune by": world.plan(
            job, GOALS.replace("none,", "none, prune_by: val/macro_f1,"), name="goals"
        ),
    }
    for part, plan in refused_plans.items():
        for run in (world.run, lambda sweep_plan: plan_sweep(sweep_plan, world.home)):
            with pytest.raises(UserError, match=f"the sweep of this name has another ({part})"):
                run(plan)
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    text_dataset(tmp_path / "data", seed=1)  # other data under the same path
    with pytest.raises(UserError, match="has another data set"):
        world.run(world.plan(job, SPACE))
    assert world.ledger.head == before
    assert len(world.ledger.trials()) == 4


def test_a_dry_run_takes_the_precision_of_the_sweep_that_goes_on(world, tiny, monkeypatch):
    monkeypatch.setattr(precision, "step_precision", lambda _: "bf16")
    auto_job = tiny_job(tiny, "train.precision=auto")
    world.run(world.plan(auto_job, SPACE, trials=1))
    assert plan_sweep(world.plan(auto_job, SPACE, trials=2), world.home)["sweep"]["trials"] == 2
    with pytest.raises(UserError, match="another job"):
        plan_sweep(world.plan(tiny_job(tiny, "train.precision=float32"), SPACE), world.home)


def test_fresh_begins_anew(world, job):
    first_report = world.run(world.plan(job, SPACE, trials=2))
    second_report = world.run(
        world.plan(tiny_job(job.data.path, "train.epochs=5"), SPACE, trials=3, fresh=True)
    )
    assert second_report.id != first_report.id
    assert len(second_report.trials) == 3
    third_report = world.run(world.plan(tiny_job(job.data.path, "train.epochs=5"), SPACE, trials=4))
    assert (third_report.id, len(third_report.trials)) == (second_report.id, 4)


def test_a_job_that_is_resumed_goes_on_with_what_fresh_began(world, job, monkeypatch):
    other_report = world.run(world.plan(job, SPACE, trials=2))
    monkeypatch.setenv("MLCL_JOB", "lab-7")
    first_report = world.run(world.plan(job, SPACE, trials=2, fresh=True))
    monkeypatch.delenv("MLCL_JOB")
    later_report = world.run(world.plan(job, SPACE, trials=1, fresh=True))
    monkeypatch.setenv("MLCL_JOB", "lab-7")
    resumed_report = world.run(world.plan(job, SPACE, trials=4, fresh=True))
    assert len({other_report.id, first_report.id, later_report.id}) == 3
    assert (first_report.id, resumed_report.id, len(resumed_report.trials)) == ("lab-7", "lab-7", 4)


def test_a_budget_that_was_enough_is_no_reason_to_say_budget(world, job, monkeypatch):
    plan = world.plan(job, PLAIN, trials=2, budget=parse_budget("2cpu-s"))
    world.run(plan)
    monkeypatch.setattr(Account, "is_used_up", lambda _account: True)
    assert world.run(plan).state is State.COMPLETE


def test_what_a_budget_interrupts_says_budget_everywhere(world, job, monkeypatch):
    monkeypatch.setattr(Account, "is_used_up", lambda _account: len(world.formula.trained) >= 6)
    plan = world.plan(job, PLAIN, trials=4, budget=parse_budget("1cpu-h"))
    assert world.run(plan).state is State.BUDGET
    assert states(world) == [State.COMPLETE, State.BUDGET]
    assert log_of(world, "trial-0001")["end"] == ["BUDGET", "the budget is used up"]
    assert world.study.trials[1].state is TrialState.WAITING
    assert world.study.trials[1].user_attrs["state"] == "BUDGET"
    monkeypatch.setattr(Account, "is_used_up", lambda _account: False)
    assert world.run(plan).state is State.COMPLETE
    assert world.study.trials[1].user_attrs["reason"] == ""


def test_a_failed_trial_keeps_its_reason_everywhere(world, job):
    world.formula.fails = lambda _job, epoch: len(trials(world)) == 2 and epoch == 2
    report = world.run(world.plan(job, PLAIN, trials=3))
    reason = "Diverged: the loss is not finite [step 20]"
    assert report.state is State.COMPLETE
    assert (report.trials[1].state, report.trials[1].reason) == (State.FAILED, reason)
    assert (trials(world)[1].state, trials(world)[1].reason) == (State.FAILED, reason)
    assert world.study.trials[1].state is TrialState.FAIL
    assert world.study.trials[1].user_attrs["reason"] == reason
    log = log_of(world, "trial-0001")
    assert log["end"] == ["FAILED", reason]
    assert "error.txt" in log["texts"]


def test_too_many_failures_in_a_row_end_it(world, job):
    world.formula.fails = lambda _job, _epoch: len(trials(world)) > 1
    text = f"{SPACE}\nsearch: {{scheduler: none, max_failed: 1}}"
    report = world.run(world.plan(job, text, trials=9, seeds=2))
    assert report.state is State.FAILED
    assert report.reason.startswith("2 trainings failed in a row, the limit is 1; the last: Diverged")
    assert states(world) == [State.COMPLETE, State.FAILED, State.FAILED]
    assert report.best is not None
    assert report.confirmations == ()
    assert not (world.folder / "STOP").exists()


def test_what_runs_when_others_failed_is_stopped_and_may_go_on(world, job):
    world.formula.fails = lambda job, _epoch: job.objective.heads["topic"].temperature == 0.5
    world.execute(at_once=2)
    text = f"{SPACE}\nsearch: {{scheduler: none, max_failed: 0}}"
    plan = world.plan(job, text, trials=2)  # the first trial is the job as written
    report = world.run(plan)
    assert (report.state, states(world)) == (State.FAILED, [State.FAILED, State.STOPPED])
    assert trials(world)[1].reason.startswith("1 trainings failed in a row")
    assert world.run(plan).state is State.COMPLETE
    assert states(world) == [State.FAILED, State.COMPLETE]
    assert trials(world)[1].reason == ""


def test_no_complete_trial_is_a_failure(world, job):
    world.formula.fails = lambda _job, _epoch: True
    report = world.run(world.plan(job, PLAIN, trials=2, seeds=2))
    assert (report.state, report.reason, report.best) == (State.FAILED, "no trial is complete", None)
    assert report.confirmations == ()


def test_a_score_that_is_no_number_is_a_failure_everywhere(world, job):
    world.formula.scale = lambda _job: math.nan if len(trials(world)) == 1 else 1.0
    report = world.run(world.plan(job, PLAIN, trials=2))
    assert states(world) == [State.FAILED, State.COMPLETE]
    assert report.trials[0].reason == "val/accuracy is not a number"
    assert world.study.trials[0].state is TrialState.FAIL
    assert log_of(world, "trial-0000")["end"] == ["FAILED", "val/accuracy is not a number"]


def test_an_exception_of_the_executor_ends_in_a_true_state(world, job, monkeypatch):
    def broken(callbacks, **_):
        callbacks.begin(callbacks.next().key)
        raise RuntimeError("no cluster")

    monkeypatch.setattr("mlcl.service.engine.engine.run_trainings", broken)
    with pytest.raises(RuntimeError, match="no cluster"):
        world.run(world.plan(job, PLAIN))
    contents = world.everything()
    assert (contents["ledger"]["state"], contents["ledger"]["record"]) == ("FAILED", "FAILED")
    assert contents["logs"]["SWEEP"]["end"] == ["FAILED", "RuntimeError: no cluster"]
    assert contents["logs"]["SWEEP.trial-0000"]["end"] == ["STOPPED", ""]
    assert states(world) == [State.STOPPED]


def test_processes_that_die_again_and_again(world, job, monkeypatch):
    def deadly(callbacks, **_):
        task = callbacks.next()
        callbacks.begin(task.key)
        callbacks.begin(task.key)  # a second process
        callbacks.on_died(task.key, "its process died again and again")
        callbacks.end(task.key, {})  # Tune reports both

    monkeypatch.setattr("mlcl.service.engine.engine.run_trainings", deadly)
    world.run(world.plan(job, PLAIN, trials=1))
    assert states(world) == [State.FAILED]
    assert "died again and again" in trials(world)[0].reason
    assert world.study.trials[0].state is TrialState.FAIL


def test_an_ended_training_cannot_begin_again(world, job, monkeypatch):
    def twice(callbacks, **options):
        in_process(callbacks, **options)
        with pytest.raises(RuntimeError, match="trial 0 is COMPLETE"):
            callbacks.begin("trial-0000")

    monkeypatch.setattr("mlcl.service.engine.engine.run_trainings", twice)
    world.run(world.plan(job, PLAIN, trials=1))
    assert states(world) == [State.COMPLETE]


def test_an_error_while_a_trial_is_closed_leaves_nothing_running(world, job, monkeypatch):
    def broken(*_):
        raise ConnectionError("so it is not told")

    def then_broken(callbacks, **options):
        in_process(callbacks, **{**options, "most": 1})
        callbacks.begin(callbacks.next().key)
        monkeypatch.setattr("mlcl.service.search.search_source.SearchSource.on_end", broken)
        callbacks.report("trial-0001", 1, 0.5)
        raise ConnectionError("so Tune's loop ends")

    with monkeypatch.context() as patch:
        patch.setattr("mlcl.service.engine.engine.run_trainings", then_broken)
        with pytest.raises(ConnectionError):
            world.run(world.plan(job, PLAIN, trials=2))
    assert states(world) == [State.COMPLETE, State.STOPPED]
    sweep = world.ledger.head["id"]
    log_states = [
        RunLog.attach(world.home, id).state for id in (sweep, f"{sweep}.trial-0000", f"{sweep}.trial-0001")
    ]
    assert log_states == [State.FAILED, State.COMPLETE, State.STOPPED]


def test_several_goals_have_a_front(world, job):
    report = world.run(world.plan(job, GOALS, trials=8, seeds=1, confirm=2))
    assert [goal.metric for goal in report.goals] == ["val/accuracy", "val/macro_f1"]
    assert 1 < len(report.front) < len(report.trials)
    for trial in report.trials:
        better_trials = [
            other
            for other in report.trials
            if other.values[0] >= trial.values[0]
            and other.values[1] >= trial.values[1]
            and other.values != trial.values
        ]
        assert (trial in report.front) == (not better_trials)
    assert {trial.key for trial in report.front} == {
        trials(world)[trial.number].key for trial in world.study.best_trials
    }
    confirmed_labels = [confirmation.label for confirmation in report.confirmations]
    best_trials = sorted(report.front, key=lambda trial: -trial.values[0])[:2]
    assert [
        f"best found ({best_trials[0].label})",
        f"no. 2 found ({best_trials[1].label})",
    ] == confirmed_labels[1:]


def test_picks_are_confirmed_on_seeds_that_are_not_the_searchs_or_the_races(world, job):
    baseline = tiny_job(job.data.path, "objective.heads.detail.temperature=0.3")
    report = world.run(
        world.plan(job, PLAIN, trials=1, seeds=3, baselines=[("base", baseline), ("twin", job)])
    )
    # The job as written is the only trial, so it is also the best one.
    assert [confirmation.label for confirmation in report.confirmations] == [
        "base, as written = best found (base, trial 0)",
        "twin",
        "as written = best found (trial 0)",
    ]
    for confirmation in report.confirmations:
        assert confirmation.state is State.COMPLETE
        seeds = [world.ledger.entries[seed.key].job["train"]["seed"] for seed in confirmation.seeds]
        assert seeds == [1, 2, 3]
        assert all("test/accuracy" in seed.metrics for seed in confirmation.seeds)
    search_seeds = [trial.job["train"]["seed"] for trial in trials(world)]
    assert search_seeds == [0]
    assert not any("test/accuracy" in trial.metrics for trial in trials(world))


def test_a_confirmation_is_told_as_the_mean_of_its_seeds_and_grows(world, job):
    world.run(world.plan(job, PLAIN, trials=1, seeds=2))
    (confirmation,) = world.ledger.confirmations
    first_points = log_of(world, confirmation)["points"]
    seeds = [entry.metrics["test/accuracy"] for entry in world.ledger.seeds_of(confirmation)]
    assert first_points["test/accuracy 2"] == pytest.approx(sum(seeds) / 2)
    report = world.run(world.plan(job, PLAIN, trials=1, seeds=3))
    seeds = [entry.metrics["test/accuracy"] for entry in world.ledger.seeds_of(confirmation)]
    assert log_of(world, confirmation)["points"]["test/accuracy 3"] == pytest.approx(sum(seeds) / 3)
    assert log_of(world, confirmation)["end"] == ["COMPLETE", ""]
    assert len(report.confirmations[0].seeds) == 3


def test_a_confirmation_with_a_failed_seed_is_not_complete(world, job):
    world.formula.fails = lambda job, _epoch: job.train.seed == 2
    report = world.run(world.plan(job, PLAIN, trials=1, seeds=2))
    (confirmation,) = report.confirmations
    assert confirmation.state is State.FAILED
    assert [seed.state for seed in confirmation.seeds] == [State.COMPLETE, State.FAILED]
    assert log_of(world, confirmation.key)["end"] == ["FAILED", "not every seed is complete"]


def test_a_stopped_confirmation_goes_on(world, job):
    plan = world.plan(job, PLAIN, trials=3, seeds=2)
    world.stop_when(lambda job, epoch: job.train.seed == 2 and epoch == 2)
    report = world.run(plan)
    assert report.state is State.STOPPED
    assert [confirmation.state for confirmation in report.confirmations] == [State.STOPPED]
    assert not [log for log in world.everything()["logs"].values() if log["end"] is None]
    report = world.run(plan)
    assert report.state is State.COMPLETE
    assert {confirmation.state for confirmation in report.confirmations} == {State.COMPLETE}
    assert all(log["end"][0] == "COMPLETE" for log in world.everything()["logs"].values())


def test_a_search_that_was_stopped_confirms_nothing_yet(world, job):
    plan = world.plan(job, PLAIN, trials=3, seeds=2)
    world.stop_when(lambda _job, epoch: len(trials(world)) == 2 and epoch == 2)
    report = world.run(plan)
    assert (report.state, report.confirmations) == (State.STOPPED, ())
    assert not world.ledger.confirmations
    assert len(world.run(plan).confirmations) == 1


@pytest.mark.parametrize("killed", [False, True])
def test_a_grown_search_that_was_stopped_opens_no_further_seeds(world, job, killed):
    first_plan = world.plan(job, PLAIN, trials=3, seeds=2)
    if killed:
        world.kill_when(lambda job, epoch: job.train.seed == 2 and epoch == 2)
        assert world.killed(first_plan)
    else:
        world.run(first_plan)
    before = {key for key, entry in world.ledger.entries.items() if entry.confirmation is not None}
    plan = world.plan(job, PLAIN, trials=6, seeds=4)
    world.stop_when(lambda _job, epoch: len(trials(world)) == 5 and epoch == 2)
    assert world.run(plan).state is State.STOPPED
    assert {key for key, entry in world.ledger.entries.items() if entry.confirmation is not None} == before
    assert not [log for log in world.everything()["logs"].values() if log["end"] is None]
    assert [len(confirmation.seeds) for confirmation in world.run(plan).confirmations] == [4]


@pytest.mark.parametrize("space", [PLAIN, FREE])
def test_a_sweep_that_is_stopped_in_its_race_is_stopped_and_goes_on(world, job, space):
    plan = world.plan(job, space, trials=6, seeds=2, confirm=4)
    world.stop_when(lambda job, epoch: job.train.seed == 501 and epoch == 2)
    report = world.run(plan)
    assert (report.state, report.confirmations) == (State.STOPPED, ())
    assert State.STOPPED not in {trial.state for trial in report.trials}  # the search itself had ended
    assert [log["end"][0] for name, log in world.everything()["logs"].items() if name == "SWEEP"] == [
        "STOPPED"
    ]
    report = world.run(plan)
    assert report.state is State.COMPLETE
    assert [len(confirmation.seeds) for confirmation in report.confirmations] == [2]


def test_the_race_takes_the_best_mean_on_fresh_validation_seeds(world, job):
    # On the search's seed the first drawn trial is best, on fresh seeds the job as written is.
    written_temperature = job.objective.heads["detail"].temperature
    world.formula.scale = lambda trial_job: (
        1.0
        if trial_job.objective.heads["detail"].temperature == written_temperature or trial_job.train.seed == 0
        else 0.5
    )
    report = world.run(world.plan(job, PLAIN, trials=9, seeds=2, confirm=4))
    ((search,),) = [arm.searches for arm in report.arms]
    race_entries = [entry for entry in world.ledger.entries.values() if "race" in (entry.confirmation or "")]
    assert search.race[0].name == search.pick == "as written"
    assert len(search.race) == 4  # a third of nine trials, and the job as written
    assert {entry.job["train"]["seed"] for entry in race_entries} == {501, 502}
    assert not any("test/accuracy" in entry.metrics for entry in race_entries)
    assert [setting.name for setting in report.confirmations] == ["as written"]
    assert search.sentence.startswith("use the job as written: ")
    assert search.kept == 1.0 or search.kept is None


def test_the_race_chooses_neighbours_by_the_mean_over_its_seeds(world, job):
    """Tests a case where one neighbour is best on seed 502, but three are best by the mean of both seeds."""
    plan = world.plan(job, FREE, trials=4, seeds=2, control=control_job(job))
    report = world.run(plan)
    assert (report.state, report.score, report.fresh_score) == (
        State.COMPLETE,
        "val/accuracy",
        "knn/val/accuracy",
    )
    knn = {"k": 3, "lambda": 0.5, "temperature": 1.0}
    control, heads = report.arms
    assert [entrant.knn for entrant in heads.searches[0].race] == [knn] * len(heads.searches[0].race)
    # The control has no key of the space, so its race chooses only its neighbours.
    assert [(entrant.name, entrant.knn) for entrant in control.searches[0].race] == [("control", knn)]
    for entrant in (*control.searches[0].race, *heads.searches[0].race):
        assert entrant.scores == pytest.approx([score + 0.03 for score in entrant.alone])
    knn_settings = {f"evaluation.knn.{key}": value for key, value in knn.items()}
    for setting in report.confirmations:
        assert knn_settings.items() <= setting.settings.items()
        for seed in setting.seeds:
            seed_knn = world.ledger.entries[seed.key].job["evaluation"]["knn"]
            assert seed_knn == {**knn, "grid": None}
            assert seed.metrics["knn/val/accuracy"] == pytest.approx(seed.metrics["val/accuracy"] + 0.03)
    (verdict, _), confirmation = report.verdicts, report.confirmations[-1]
    assert verdict.treated.mean == pytest.approx(fmean(confirmation.metric_values("knn/test/accuracy")))
    assert all(trial.score == trial.metrics["val/accuracy"] for trial in report.trials if trial.values)
    assert all(trial.chosen == {} for trial in report.trials)
    params = log_of(world, report.confirmations[-1].seeds[0].key)["params"]
    assert (params["evaluation.knn.k"], params["evaluation.knn.lambda"]) == ("3", "0.5")
    trained_epochs = list(world.formula.trained)
    assert world.run(plan).confirmations == report.confirmations
    assert world.formula.trained == trained_epochs


def test_neighbours_that_do_not_help_are_left_out(world, job):
    report = world.run(world.plan(job, FREE.replace("[1, 3]", "[1]"), trials=2, seeds=2))
    ((search,),) = [arm.searches for arm in report.arms]
    assert {entrant.knn["lambda"] for entrant in search.race} == {0.0}
    assert "without neighbours" in search.sentence
    (setting,) = report.confirmations
    assert all(seed.metrics["knn/val/accuracy"] == seed.metrics["val/accuracy"] for seed in setting.seeds)


def test_a_sweep_keeps_the_score_with_which_it_began(world, job):
    """Tests a sweep without fresh seeds, which has no race, so that each trial chooses its neighbours."""
    first_report = world.run(world.plan(job, FREE, trials=2))
    assert first_report.score == first_report.fresh_score == "knn_best/val/accuracy"
    grown_report = world.run(world.plan(job, FREE, trials=2, seeds=1))
    assert (grown_report.id, grown_report.fresh_score) == (first_report.id, "knn_best/val/accuracy")
    assert not any(
        entrant.knn for arm in grown_report.arms for search in arm.searches for entrant in search.race
    )
    plan = world.plan(job, FREE, trials=2, seeds=1, name="raced")
    raced_report = world.run(plan)
    later_report = world.run(world.plan(job, FREE, trials=3, name="raced"))
    assert (later_report.id, later_report.score, len(later_report.trials)) == (
        raced_report.id,
        "val/accuracy",
        3,
    )
    raceless_text = FREE.replace("{reduction", "{race_seeds: 0, reduction")
    with pytest.raises(UserError, match=r"search\.race_seeds: the races of this sweep choose"):
        world.run(world.plan(job, raceless_text, trials=2, seeds=1, name="raced"))


def test_a_race_of_other_trials_follows_a_search_that_grows(world, job):
    first_report = world.run(world.plan(job, PLAIN, trials=2, seeds=1))
    report = world.run(world.plan(job, PLAIN, trials=8, seeds=1))
    ((before,), (after,)) = (
        [arm.searches[0] for arm in sweep_report.arms] for sweep_report in (first_report, report)
    )
    assert len(before.race) < len(after.race)
    assert max(entrant.mean for entrant in after.race) == next(
        entrant.mean for entrant in after.race if entrant.name == after.pick
    )
    assert [setting.name for setting in report.confirmations] == [after.pick]


ARMS = """
space: {train.lr: {log_float: [0.001, 0.1]}, objective.heads.*.weight: {log_float: [0.003, 0.4]}}
search: {scheduler: none}
"""


def test_each_arm_has_searches_and_the_heads_start_at_their_control(world, job):
    control = control_job(job)
    world.formula.score = lambda trial_job, _: (
        0.5 + 0.001 * (trial_job.train.seed % 7) - abs(trial_job.train.lr - 0.03)
    )
    report = world.run(world.plan(job, ARMS, trials=7, seeds=4, searches=2, control=control))
    assert report.state is State.COMPLETE
    assert [(arm.name, len(arm.searches)) for arm in report.arms] == [("control", 2), ("heads", 2)]
    assert [search.trials for arm in report.arms for search in arm.searches] == [4, 4, 4, 4]
    seeds = [[seed.seed for seed in setting.seeds] for setting in report.confirmations]
    assert seeds == [[1, 2], [1001, 1002]] * 2
    assert len({setting.key for setting in report.confirmations}) == 4
    first_trials, second_trials = (trials_of(world, scope) for scope in ("", world.ledger.searches[-1]))
    for number, search_trials in enumerate((first_trials, second_trials)):
        pick = report.confirmations[number].settings
        assert search_trials[1].settings["objective.heads.detail.weight"] == pytest.approx(0.003)
        if pick:
            assert search_trials[1].settings["train.lr"] == pytest.approx(pick["train.lr"])
    # Each search has its own sampler.
    assert [t.settings for t in first_trials[2:]] != [t.settings for t in second_trials[2:]]
    # Because validation is small, the second search of an arm draws its own validation rows.
    validation_seeds = [
        world.ledger.entries[confirmation.seeds[0].key].job["data"].get("validation_seed")
        for confirmation in report.confirmations
    ]
    assert validation_seeds == [None, 2, None, 2]
    assert {seed.fingerprint for confirmation in report.confirmations for seed in confirmation.seeds} == {
        report.data.fingerprint,
        dataset_info(job).with_validation(2, {}).fingerprint,
    }
    heads_verdict, baseline_verdict = report.verdicts
    assert (heads_verdict.question, baseline_verdict.question) == ("heads", "baseline")
    assert (heads_verdict.treated.searches, heads_verdict.treated.trainings) == (2, 4)
    assert (
        "\n".join([heads_verdict.sentence, baseline_verdict.sentence])
        == log_of(world, "")["tags"]["mlcl.sweep.verdict"]
    )


def dataset_info(job):
    return Dataset.open(job.data.path).info


def trials_of(world, scope):
    return world.ledger.trials(scope=scope)


def test_a_grid_ends_when_each_point_was_tried(world, job):
    world.formula.fails = lambda job, _epoch: job.train.lr == 0.02 and len(trials(world)) % 2 == 0
    report = world.run(world.plan(job, GRID, trials=99))
    points = [json.dumps(trial.settings, sort_keys=True) for trial in report.trials]
    assert (len(points), len(set(points))) == (6, 6)
    assert world.run(world.plan(job, GRID, trials=200)).trials == report.trials


def test_a_grid_that_is_widened_tries_what_is_new(world, job):
    world.run(world.plan(job, GRID, trials=99))
    wider_report = world.run(world.plan(job, GRID.replace("0.2, 0.5", "0.2, 0.5, 0.8"), trials=99))
    points = {json.dumps(trial.settings, sort_keys=True) for trial in wider_report.trials}
    assert (len(wider_report.trials), len(points)) == (8, 8)


def test_free_keys_are_told_where_they_were_answered_and_nowhere_else(world, job):
    report = world.run(world.plan(job, FREE, trials=6))
    trial_states = {trial.state for trial in report.trials}
    assert trial_states == {State.COMPLETE, State.PRUNED}
    for trial, study_trial in zip(report.trials, world.study.trials, strict=True):
        params = log_of(world, trial.key)["params"]
        if trial.state is State.PRUNED:
            assert trial.chosen == {}
            assert study_trial.user_attrs["chosen"] == {}
            assert not {"evaluation.knn.k", "evaluation.knn.lambda"} & params.keys()
        else:
            k = 3 if trial.metrics["val/accuracy"] > 0.5 else 1
            expected = {
                "evaluation.knn.k": k,
                "evaluation.knn.lambda": 0.5,
                "evaluation.knn.temperature": 1.0,
            }
            assert trial.chosen == study_trial.user_attrs["chosen"] == expected
            assert isinstance(trial.chosen["evaluation.knn.k"], int)
            assert params["evaluation.knn.k"] == str(k)
            assert params["evaluation.knn.lambda"] == "0.5"
            assert trial.score == trial.metrics["knn_best/val/accuracy"]


def test_code_that_changes_on_the_way_is_said_and_can_be_refused(world, job, monkeypatch):
    code = "mlcl.service.engine.command.code"
    monkeypatch.setattr(code, lambda: "0.1.0 aaaa")
    world.run(world.plan(job, PLAIN, trials=1))
    world.run(world.plan(job, PLAIN, trials=2))
    assert "the code has changed" not in world.notes()
    assert "mlcl.code" not in log_of(world, "trial-0000")["tags"]
    monkeypatch.setattr(code, lambda: "0.1.0 aaaa +bbbb")
    before = world.ledger.clock_seconds
    with pytest.raises(UserError, match=r"--strict-code.*the code has changed"):
        run_sweep(world.plan(job, PLAIN, trials=3), home=world.home, watch=print, strict_code=True)
    assert world.ledger.clock_seconds == before
    world.run(world.plan(job, PLAIN, trials=3))
    note = "the code has changed since the last command: 0.1.0 aaaa, now 0.1.0 aaaa +bbbb"
    assert world.notes().count(note) == 1
    assert world.everything()["logs"]["SWEEP"]["tags"]["mlcl.code"] == "0.1.0 aaaa, then 0.1.0 aaaa +bbbb"


@pytest.mark.parametrize(("way", "how"), [(shutil.move, "stopped"), (shutil.copytree, "killed")])
def test_a_moved_or_copied_home_goes_on(tmp_path, monkeypatch, job, databases_of, way, how):
    uri = f"sqlite:///{databases_of(tmp_path / 'home')}"
    world = World(tmp_path / "home", monkeypatch, uri)
    plan = world.plan(job, PLAIN, trials=3)
    if how == "stopped":
        world.stop_when(lambda _job, epoch: len(trials(world)) == 2 and epoch == 2)
        assert world.run(plan).state is State.STOPPED
    else:
        world.kill_when(lambda _job, epoch: len(trials(world)) == 2 and epoch == 2)
        assert world.killed(plan)
    folder_name = world.folder.name
    way(tmp_path / "home", tmp_path / "elsewhere")
    left_paths = sorted((tmp_path / "home").rglob("*"))
    _artifact_repos_cache.clear()  # a new command would be a new process, without this cache
    other_world = World(tmp_path / "elsewhere", monkeypatch, f"sqlite:///{tmp_path}/elsewhere/mlflow.db")
    report = other_world.run(other_world.plan(job, PLAIN, trials=3))
    assert (report.state, other_world.folder.name, report.undelivered) == (State.COMPLETE, folder_name, 0)
    assert sorted((tmp_path / "home").rglob("*")) == left_paths
    contents = other_world.everything()
    assert {run["status"] for run in contents["mlflow"].values()} <= {"FINISHED", "KILLED"}
    assert contents["mlflow"]["SWEEP.trial-0000"]["artifacts"]


def test_the_export_of_the_best_model_can_be_interrupted(databases_of, tmp_path, monkeypatch, job):
    world = World(tmp_path / "home", monkeypatch, f"sqlite:///{databases_of(tmp_path / 'home')}")
    plan = world.plan(job, PLAIN, trials=2)
    with monkeypatch.context() as patch:
        patch.setattr(best_model, "export_version", Mock(side_effect=KeyboardInterrupt))
        report = world.run(plan)
    assert (report.state, report.registered) == (State.COMPLETE, "")
    assert "the best model is not registered: interrupted; the same command does it" in world.notes()
    assert world.run(plan).registered == f"models:/{job.experiment}@best (version 1)"


class Patient(AtOnce):
    """A delivery whose outages end a round of deliveries but not the command, as in the real thread."""

    def deliver(self):
        with suppress(OSError):
            super().deliver()


def unreachable(send):
    """Returns a delivery that fails for the log `other` alone, as if its bucket could not be reached."""

    def deliver(sender):
        if sender.id == "other":
            raise OSError(errno.ENETUNREACH, "away")
        yield from send(sender)

    return deliver


def test_a_log_that_is_not_delivered_keeps_no_model_of_another_from_its_registration(
    databases_of, tmp_path, monkeypatch, job
):
    world = World(tmp_path / "home", monkeypatch, f"sqlite:///{databases_of(tmp_path / 'home')}")
    options = {"uri": world.mlflow, "experiment": "other", "name": "other", "owner": "other"}
    RunLog.start(world.home, "other", params={}, tags={}, **options)
    monkeypatch.setattr(command, "Delivery", Patient)
    monkeypatch.setattr(Sender, "deliver", unreachable(Sender.deliver))
    report = world.run(world.plan(job, PLAIN, trials=2))
    assert (report.state, report.undelivered) == (State.COMPLETE, 1)
    assert report.registered == f"models:/{job.experiment}@best (version 1)"


def test_a_model_whose_own_log_is_not_in_mlflow_is_not_registered_which_is_said(
    databases_of, tmp_path, monkeypatch, job
):
    world = World(tmp_path / "home", monkeypatch, f"sqlite:///{databases_of(tmp_path / 'home')}")
    plan = world.plan(job, PLAIN, trials=2)
    with monkeypatch.context() as patch:
        patch.setattr(AtOnce, "delivered_run", lambda *_: None)
        assert world.run(plan).registered == ""
    note = "the best model is not registered: the log mlcl-20300101-000000-"
    assert note in world.notes()
    assert world.run(plan).registered == f"models:/{job.experiment}@best (version 1)"


def test_the_longest_names_are_taken_everywhere(databases_of, tmp_path, monkeypatch, tiny):
    world = World(tmp_path / "home", monkeypatch, f"sqlite:///{databases_of(tmp_path / 'home')}")
    tree = job_tree(tiny) | {"experiment": "e" * 200}
    heads = tree["objective"]["heads"]
    tree["objective"]["heads"] = {name[0] * 100: head for name, head in heads.items()}
    report = world.run(world.plan(load_job(tree), PLAIN, trials=1, name="n" * 200))
    assert (report.state, report.undelivered) == (State.COMPLETE, 0)
    assert report.registered == f"models:/{'e' * 200}@best (version 1)"
    assert undelivered_logs(world.home) == []


def everywhere(client):
    """Returns the experiment and the name of each run of a store, including deleted runs."""
    experiments = {
        experiment.experiment_id: experiment.name for experiment in client.search_experiments(ViewType.ALL)
    }
    runs = client.search_runs(list(experiments), "", ViewType.ALL)
    return sorted((experiments[run.info.experiment_id], run.info.run_name) for run in runs)


def test_a_sweep_grows_in_its_experiment_whatever_its_name_is_now(databases_of, tmp_path, monkeypatch, job):
    world = World(tmp_path / "home", monkeypatch, f"sqlite:///{databases_of(tmp_path / 'home')}")
    world.run(world.plan(job, PLAIN, trials=1))
    client = MlflowClient(world.mlflow)
    id = client.get_experiment_by_name("tiny").experiment_id
    client.rename_experiment(id, "of the lab")
    report = world.run(world.plan(job, PLAIN, trials=3, seeds=1))
    assert (report.state, report.undelivered) == (State.COMPLETE, 0)
    assert world.notes().count("the experiment tiny is now of the lab in MLflow") == 1
    experiments, names = zip(*everywhere(client), strict=True)
    assert set(experiments) == {"of the lab"}
    assert {"sweep", "trial 0", "trial 1", "trial 2"} < set(names)
    assert "sweep" in client.get_experiment(id).tags["mlflow.note.content"]


@pytest.mark.parametrize("what", ["run", "experiment"])
def test_a_sweep_that_was_deleted_in_mlflow_says_the_way_back(databases_of, tmp_path, monkeypatch, job, what):
    world = World(tmp_path / "home", monkeypatch, f"sqlite:///{databases_of(tmp_path / 'home')}")
    report = world.run(world.plan(job, PLAIN, trials=1))
    client = MlflowClient(world.mlflow)
    run_id = Cursor.read(log_folder(world.home, report.id)).run_id
    id = client.get_experiment_by_name("tiny").experiment_id
    delete, restore, hint = {
        "run": (client.delete_run, client.restore_run, f"mlflow runs restore --run-id {run_id}`"),
        "experiment": (client.delete_experiment, client.restore_experiment, f"experiments restore -x {id}`"),
    }[what]
    deleted_id = run_id if what == "run" else id
    delete(deleted_id)
    for command_of in (
        lambda: world.run(world.plan(job, PLAIN, trials=2)),
        lambda: Runs(Tracker(world.home)).require_group("sweep"),
        lambda: Runs.open_quickly(world.home).require_group(report.id),
        lambda: find_settings(Runs(Tracker(world.home)), ["sweep"]),
        lambda: model_run(Runs(Tracker(world.home)), "sweep"),
    ):
        with pytest.raises(UserError, match=f"the {what} was deleted in MLflow") as error:
            command_of()
        assert hint in error.value.line()
    assert len(trials(world)) == 1
    restore(deleted_id)
    assert world.run(world.plan(job, PLAIN, trials=2)).state is State.COMPLETE
