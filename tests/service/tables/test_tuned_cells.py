"""Tests of tuned cells: a search on validation, then the test metrics of the best trial on fresh seeds."""

import json
import math
import statistics
from dataclasses import replace
from types import SimpleNamespace

import pytest
from reproduced import TABLE, TUNE, TUNED

from mlcl.config import dump_job
from mlcl.errors import UserError
from mlcl.service.engine.budget import amount_text
from mlcl.service.engine.entries import Cost
from mlcl.service.engine.ledger import Ledger
from mlcl.service.tables import cost
from mlcl.service.tables.cost import UNKNOWN, plan_table
from mlcl.service.tables.trainings import TableTrainings
from mlcl.tracking import State
from mlcl.tracking.log import first_entry

NAME = "objective.heads.detail.temperature"


def tuned(report):
    return next(cell for cell in report.cells if cell.row == "Warm")


def ledger(report):
    return Ledger(report.folder)


def searched(report):
    return ledger(report).trials(scope="warm_all")


def test_the_best_trial_is_trained_with_fresh_seeds_whose_test_metrics_are_shown(tables):
    report = tables.run(tables.plan(TUNED))
    assert (report.state, report.missing) == (State.COMPLETE, [])
    trials = searched(report)
    assert len(trials) == 4
    assert {trial.job["train"]["seed"] for trial in trials} == {0}
    assert not any("test/accuracy" in trial.metrics for trial in trials)
    best = max((t for t in trials if t.state is State.COMPLETE), key=lambda trial: trial.score)
    (confirmation,) = ledger(report).confirmations.values()
    assert (confirmation.label, confirmation.settings) == (best.label, best.settings)
    seeds = ledger(report).seeds_of(confirmation.key)
    assert [seed.job["train"]["seed"] for seed in seeds] == [1, 2]
    cell = tuned(report)
    assert cell.figures[0].values == tuple(seed.metrics["test/accuracy"] for seed in seeds)
    assert cell.runs == tuple(f"{report.id}.{seed.key}" for seed in seeds)
    assert cell.test_rows == 24
    assert (cell.settings, report.cells[0].settings, len(tables.states())) == (best.settings, None, 2)
    cold_tree, warm_tree = json.loads((report.folder / "table.json").read_text())["cells"]
    assert ("settings" in cold_tree, list(warm_tree["settings"])) == (False, [NAME])
    # Logs are nested in the table's log and named after the cell.
    start = first_entry(tables.home / "logs" / f"{report.id}.warm_all.trial-0002" / "log.jsonl")
    assert (start["name"], start["parent"]) == ("Warm, All, trial 2", report.id)
    labels = [event.row.label for event in tables.events if event.kind == "begin"]
    assert labels[:3] == ["Cold, All, seed 0", "Cold, All, seed 1", "Warm, All, trial 0"]


def test_every_seed_key_gets_the_fresh_seed(tables):
    seed_options = {"seed_keys": ["train.seed", "data.subset.seed"], "set": {"data.subset": {"n": 24}}}
    report = tables.run(tables.plan({**TUNED, **seed_options}))
    seed_jobs = [entry.job for entry in ledger(report).entries.values() if entry.confirmation]
    assert [(job["train"]["seed"], job["data"]["subset"]["seed"]) for job in seed_jobs] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(("seed", "at"), [(0, 1), (2, 2)])
def test_a_stop_in_the_search_or_in_the_confirmation_is_gone_on_from(world, seed, at):
    unbroken_tables = world("whole")
    unbroken_tables.run(unbroken_tables.plan(TUNED))
    tables = world("home")
    tables.stop_when(lambda job, epoch: job.train.seed == seed and epoch == at and len(tables.trained()) > 3)
    report = tables.run(tables.plan(TUNED))
    assert (report.state, tuned(report).figures[0].verdict) == (State.STOPPED, "missing")
    assert tables.run(tables.plan(TUNED)).state is State.COMPLETE
    own_ledger, unbroken_ledger = tables.everything()["ledger"], unbroken_tables.everything()["ledger"]
    assert (own_ledger["entries"], own_ledger["confirmations"]) == (
        unbroken_ledger["entries"],
        unbroken_ledger["confirmations"],
    )


def test_more_trials_go_on_with_the_same_table_but_another_space_or_job_does_not(tables):
    first_report = tables.run(tables.plan(TUNED))
    grown_report = tables.run(tables.plan({**TUNED, "tune": {**TUNE, "trials": 6}}))
    assert (grown_report.id, grown_report.state) == (first_report.id, State.COMPLETE)
    before, after = searched(first_report), searched(grown_report)
    assert len(after) == 6
    assert [trial.settings for trial in after][:4] == [trial.settings for trial in before][:4]
    other_tune = {**TUNE, "space": {"space": {NAME: {"log_float": [0.1, 1.0]}}}}
    assert tables.run(tables.plan({**TUNED, "tune": other_tune})).id != first_report.id
    epoch_count = len(tables.formula.trained)
    assert tables.run(tables.plan(TUNED, overrides={"train.lr": 0.02})).id != first_report.id  # another job
    assert len(tables.formula.trained) > epoch_count


def test_the_last_point_of_a_mean_is_that_of_the_present_table(tables):
    for trials in (4, 12):
        tune = {**TUNE, "space": {**TUNE["space"], "search": {"scheduler": "none"}}, "trials": trials}
        report = tables.run(tables.plan({**TUNED, "tune": tune}))
        points = tables.logs()["table"]["points"]
        means = {name.split()[1]: mean for name, mean in points.items() if name.startswith("warm/all/acc ")}
        steps = {int(step): mean for step, mean in means.items()}
        assert steps[max(steps)] == tuned(report).figures[0].mean
    assert len(steps) == 2


def test_a_reason_names_the_seed_of_the_training(tables):
    figures = tables.formula.figures
    tables.formula.figures = lambda job: {
        **figures(job),
        "val/macro_f1": math.nan if job.train.seed == 1001 else 0.5,
    }
    tree = {"metrics": {"F1": "test/macro_f1"}, "tune": {**TUNE, "searches": 2}}
    report = tables.run(tables.plan(tree, only=["warm/all"]))
    assert [training.seed for training in tuned(report).trainings] == [1, 1001]
    assert tuned(report).reasons == ("test/macro_f1 is not a number with seed 1001",)


def test_fewer_trials_choose_among_the_first(tables):
    tune = {**TUNE, "space": {**TUNE["space"], "search": {"scheduler": "none"}}}
    short_report = tables.run(tables.plan({**TUNED, "tune": tune}))
    long_report = tables.run(tables.plan({**TUNED, "tune": {**tune, "trials": 12}}))
    assert tuned(short_report).settings != tuned(long_report).settings
    assert tuned(tables.run(tables.plan({**TUNED, "tune": tune}))).settings == tuned(short_report).settings


def test_a_column_has_the_last_word_and_a_space_may_be_a_file(tables):
    tables.write("space", TUNE["space"])
    tree = {
        "rows": {"Cold": {"tune": {"space": "space.yaml", "trials": 9, "sampler": "random"}}},
        "columns": {"All": {}, "Few": {"tune": {"space": "space.yaml", "trials": 2, "seeds": 1}}},
    }
    cells = {cell.id: cell for cell in tables.plan(tree).cells}
    assert (cells["cold/all"].tuning.trials, len(cells["cold/all"].jobs)) == (9, 2)
    assert (cells["cold/few"].tuning.trials, len(cells["cold/few"].jobs)) == (2, 1)
    assert cells["cold/all"].tuning.space.search.sampler == "random"
    assert len(tables.plan(tree, seeds=3).cells[1].jobs) == 3
    assert tables.run(tables.plan({**tree, "rows": {"Cold": {}}}, only=["*/few"])).state is State.COMPLETE


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({"seed_keys": ["train.seed", "data.split_seed"], "tune": TUNE}, "share one split"),
        ({"seed_keys": ["train.seed", "data.validation_seed"], "tune": TUNE}, "share one split"),
        ({"tune": {**TUNE, "space": "missing.yaml"}}, "missing.yaml"),
        ({"tune": {**TUNE, "space": {"space": {"train.lrr": {"float": [0, 1]}}}}}, "train.lrr"),
        ({"tune": {**TUNE, "sampler": "tpee"}}, "tpe"),
        ({"tune": {**TUNE, "trials": 0}}, "tune.trials"),
        ({"rows": {"Cold": {"set": {"evaluation.knn.k": 1}}}, "tune": TUNE}, "chooses the neighbours itself"),
        ({"metrics": {"Acc": "test/accurcy"}, "tune": TUNE}, "did you mean test/accuracy"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_starts(tables, tree, text):
    with pytest.raises(UserError, match=text) as error:
        tables.run(tables.plan(tree))
    assert "\n" not in error.value.line()
    assert not list(tables.home.glob("tables/mlcl-*"))


def test_a_search_without_a_complete_trial_is_missing_with_its_reason(tables):
    tables.formula.fails = lambda job, _epoch: job.objective.heads["detail"].temperature != 0.05
    report = tables.run(tables.plan({**TUNED, "tune": {**TUNE, "trials": 2}}))
    assert (report.state, report.missing) == (State.FAILED, ["warm/all Acc"])
    assert tuned(report).reasons == ("Diverged: the loss is not finite [step 10]",)
    assert tuned(report).runs == (None, None)


def test_the_plan_counts_its_trainings_and_says_what_they_take(tables):
    plan = plan_table(tables.plan(TUNED), tables.home)
    expected = {"trials": 4, "seeds": 2, "most_epochs": 24, "left": 6, "time_one_at_a_time": UNKNOWN}
    assert plan["trainings"]["tuned"] == {"warm/all": expected}
    longer_tune = {**TUNE, "space": {**TUNE["space"], "space": {"train.epochs": {"choice": [2, 9]}}}}
    longer_plan = plan_table(tables.plan({**TUNED, "tune": longer_tune}), tables.home)
    assert longer_plan["trainings"]["tuned"]["warm/all"]["most_epochs"] == 54
    assert [plan["trainings"][name] for name in ("all", "done", "missing")] == [8, 0, 8]
    assert plan["trainings"]["cpu_time"] == UNKNOWN
    tables.stop_when(lambda job, epoch: job.train.seed == 2 and epoch == 2)
    stopped_report = tables.run(tables.plan(TUNED))
    trainings = plan_table(tables.plan(TUNED), tables.home)["trainings"]
    assert [trainings[name] for name in ("all", "done", "missing")] == [8, 7, 1]
    ended_entries = [
        entry for entry in ledger(stopped_report).entries.values() if entry.scope and entry.ended
    ]
    assert len(ended_entries) == 5
    mean = sum(entry.cost.seconds for entry in ended_entries) / 5
    assert trainings["tuned"]["warm/all"]["time_one_at_a_time"] == amount_text(mean, "clock")
    assert "tuned" not in plan_table(tables.plan(), tables.home)["trainings"]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], math.nan),
        ([("other", {"objective.classifier.labels": "path.topic"}, 9)], math.nan),
        ([("other", {"data.subset": {"n": 24}}, 9)], math.nan),
        # A job without heads has one view, which halves the time.
        ([("other", {"objective.heads": {}}, 9)], 9),
        ([("other", {"objective.heads": {}}, 9), ("other", {"train.lr": 0.02}, 1), ("more", {}, 2)], 1.5),
        ([("other", {"objective.heads": {}}, 9), ("warm_all", {}, 1), ("more", {}, 2)], 1),
    ],
)
def test_the_time_of_a_training_is_that_of_the_nearest_searches(tables, others, expected):
    (tuned_cell,) = TableTrainings(tables.plan(TUNED), tables.home).tuned
    entries = []
    for scope, settings, seconds in others:
        (cell,) = tables.plan({"rows": {"Warm": {"set": settings}}}, name="other").cells
        entries.append(SimpleNamespace(scope=scope, job=dump_job(cell.jobs[0]), cost=Cost(seconds, 0, 0)))
    assert cost._mean_seconds(tuned_cell, entries) == pytest.approx(expected, nan_ok=True)


def test_the_search_is_told_with_what_fresh_seeds_keep(tables):
    tune_tree = {**TUNE, "space": {"space": TUNE["space"]["space"]}}  # without early stopping
    report = tables.run(tables.plan({**TUNED, "tune": tune_tree}))
    cell, trials = tuned(report), searched(report)
    scores = [trial.score for trial in trials if trial.state is State.COMPLETE]
    seeds = [entry.score for entry in ledger(report).entries.values() if entry.confirmation]
    search = cell.search
    assert (search.metric, search.mode) == ("val/accuracy", "max")
    assert sum(search.trials.values()) == 4
    assert search.trials["COMPLETE"] == len(scores)
    assert (search.best, search.median) == (max(scores), statistics.median(scores))
    assert search.fresh == statistics.fmean(seeds)
    kept_share = (search.fresh - search.median) / (search.best - search.median)
    assert search.kept == pytest.approx(kept_share)
    _, warm_tree = json.loads((report.folder / "table.json").read_text())["cells"]
    assert warm_tree["search"]["kept"] == search.kept
    assert replace(search, fresh=None).kept is replace(search, best=search.median).kept is None


def test_a_table_whose_rows_turn_the_search_off_is_the_same_table(tables):
    off_plan = tables.plan(
        {"rows": {"Cold": {**TABLE["rows"]["Cold"], "tune": False}, "Warm": {}}}, name="off"
    )
    identities = [TableTrainings(plan, tables.home).identity for plan in (off_plan, tables.plan())]
    assert identities[0] == identities[1]


def test_a_trial_that_took_results_is_no_reason_why_a_cell_is_missing(tables):
    def again():
        return [trial for trial in searched(SimpleNamespace(folder=folder())) if trial.same_as]

    def folder():
        return next(tables.home.glob("tables/mlcl-*"))

    space = {"space": {NAME: {"choice": [0.1, 0.2, 0.3, 0.4]}}, "search": {"scheduler": "none", "startup": 1}}
    tables.stop_when(lambda job, _epoch: job.objective.heads["detail"].temperature != 0.05 and again())
    report = tables.run(tables.plan({**TUNED, "tune": {"space": space, "trials": 12}}))
    assert report.state is State.STOPPED
    assert again()
    assert not any("whose results it takes" in reason for reason in tuned(report).reasons)
