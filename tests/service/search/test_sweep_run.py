"""Tests of the sweep's own run in MLflow: its parameters, the best score over time and the results."""

import json
from types import SimpleNamespace

import pytest
from builders import tiny_job

from mlcl.config import load_job
from mlcl.service.search import sweep_run
from mlcl.service.search.arms import control_job
from mlcl.service.search.sweep_run import write_results_on_close
from mlcl.tracking import State, params_of

SPACE = (
    "space: {objective.heads.*.temperature: {log_float: [0.05, 1.0]}}\nsearch: {reduction_factor: 2, MODE}"
)


def log_of(world):
    return world.everything()["logs"]["SWEEP"]


def test_results_are_written_at_most_for_a_fiftieth_of_the_time(monkeypatch):
    now, writes = [100.0], []
    clock = SimpleNamespace(monotonic=lambda: now[0])

    def write(_result):
        writes.append(now[0])
        now[0] += 1.0  # a write takes one second

    monkeypatch.setattr(sweep_run, "time", clock)
    monkeypatch.setattr(sweep_run, "write_result", write)
    reader = SimpleNamespace(result=lambda _state, _reason: None)
    listen = write_results_on_close(reader, lambda _event: None)
    for _ in range(120):
        listen(SimpleNamespace(kind="close"))
        listen(SimpleNamespace(kind="begin"))
        now[0] += 1.0
    assert writes == [100.0, 151.0, 202.0]


@pytest.mark.parametrize(("mode", "better"), [("max", max), ("min", min)])
def test_the_best_after_each_trial_that_ended(world, tiny, mode, better):
    world.formula.fails = lambda _job, epoch: len(world.ledger.trials()) == 1 and epoch == 2
    world.run(world.plan(tiny_job(tiny), SPACE.replace("MODE", f"mode: {mode}"), trials=7))
    trials, points = world.ledger.trials(), log_of(world)["points"]
    assert {trial.state for trial in trials} == {State.FAILED, State.COMPLETE, State.PRUNED}
    best = None
    for step, trial in enumerate(trials, start=1):
        if trial.state is State.COMPLETE:
            best = trial.score if best is None else better(best, trial.score)
        assert points.get(f"sweep/best {step}") == best  # no point before the first complete trial


def test_what_came_out(world, tiny):
    report = world.run(world.plan(tiny_job(tiny), SPACE.replace("MODE", "mode: max"), trials=6))
    log = log_of(world)
    counts = {state: sum(trial.state is state for trial in report.trials) for state in State}
    for state, count in counts.items():
        assert log["tags"][f"mlcl.sweep.{state.lower()}"] == str(count)
    assert log["points"]["score 0"] == report.best.score
    assert log["points"]["val/accuracy 0"] == report.best.metrics["val/accuracy"]
    assert log["tags"]["mlcl.best"] == report.best.label
    expected_params = {"sweep.score": "val/accuracy", "sweep.mode": "max"}
    assert expected_params.items() <= log["params"].items()
    assert {"job.yaml", "space.yaml", "best_settings.json"} <= log["texts"].keys()
    file = world.home / "logs" / report.id / "files" / log["texts"]["best_settings.json"]
    assert json.loads(file.read_text()) == report.best.settings


def test_pruned_and_complete_trials_compare_at_the_largest_rung_of_all(world, tiny):
    world.run(world.plan(tiny_job(tiny), SPACE.replace("MODE", "mode: max"), trials=7))
    trials = world.ledger.trials()
    last_rung = min(max(epoch for epoch, _ in trial.intermediate) for trial in trials)
    logs = world.everything()["logs"]
    figures = {
        trial.key: logs[f"SWEEP.{trial.key}"]["points"][f"rung/{last_rung}/accuracy 0"] for trial in trials
    }
    assert figures == {trial.key: dict(trial.intermediate)[last_rung] for trial in trials}
    assert {trial.state for trial in trials} == {State.COMPLETE, State.PRUNED}


def test_a_trial_has_the_parameters_that_are_not_the_sweeps(world, tiny):
    """Tests that a trial logs only keys that vary or differ from the job, also with another space or CPUs."""
    first_plan = world.plan(tiny_job(tiny), SPACE.replace("MODE", "mode: max"), trials=3)
    other_text = SPACE.replace("MODE", "mode: max").replace("0.05", "0.04")
    world.run(first_plan)
    world.run(world.plan(tiny_job(tiny), other_text, trials=5, cpus=2))
    logs = world.everything()["logs"]
    shared_params = logs["SWEEP"]["params"].items() - {("sweep.score", "val/accuracy"), ("sweep.mode", "max")}
    for trial in world.ledger.trials():
        params = logs[f"SWEEP.{trial.key}"]["params"]
        assert {**dict(shared_params), **params} == params_of(load_job(trial.job))
        assert {"tau.topic", "log10.tau.topic", "gamma"} < params.keys()
        assert len(params) < 15


def test_a_later_command_goes_on_in_the_same_run_and_says_what_it_asks(world, tiny):
    text = SPACE.replace("MODE", "mode: max")
    world.run(world.plan(tiny_job(tiny), text, trials=3))
    assert log_of(world)["tags"]["mlcl.sweep.trials"] == "3"
    before = log_of(world)["points"]
    world.run(world.plan(tiny_job(tiny), text, trials=5, seeds=1))
    log = log_of(world)
    assert (log["tags"]["mlcl.sweep.trials"], log["tags"]["mlcl.sweep.seeds"]) == ("5", "1")
    assert before.items() <= log["points"].items()
    assert log["end"] == ["COMPLETE", ""]


def test_the_last_point_of_a_metric_is_that_of_the_present_best(world, tiny):
    world.formula.scale = lambda job: 1 + job.train.lr
    text = "space: {train.lr: {log_float: [0.001, 0.1]}}\nsearch: {scheduler: none, sampler: random}"
    first_report = world.run(world.plan(tiny_job(tiny), text, trials=9, seeds=3, searches=3))
    second_report = world.run(world.plan(tiny_job(tiny), text, trials=9, searches=1))
    third_report = world.run(world.plan(tiny_job(tiny), text, trials=9, seeds=3, searches=3))
    assert first_report.best.score == third_report.best.score != second_report.best.score
    points = log_of(world)["points"]
    scores = {int(name.split()[1]): value for name, value in points.items() if name.startswith("score ")}
    assert scores[max(scores)] == third_report.best.score
    assert second_report.best.score in scores.values()


def test_trials_of_searches_that_are_no_longer_asked_for_are_the_swept_jobs(world, tiny):
    options = {"trials": 6, "control": control_job(tiny_job(tiny))}
    text = "space: {train.lr: {log_float: [0.001, 0.1]}}\nsearch: {scheduler: none}"
    full_report = world.run(world.plan(tiny_job(tiny), text, seeds=3, searches=3, **options))
    seedless_report = world.run(world.plan(tiny_job(tiny), text, seeds=0, searches=3, **options))
    assert len(full_report.trials) == len(full_report.baseline_trials) == 6
    assert {trial.key for trial in seedless_report.dropped} == {trial.key for trial in full_report.trials[2:]}
    assert {trial.key for trial in seedless_report.earlier_baseline_trials} == {
        trial.key for trial in full_report.baseline_trials
    }
