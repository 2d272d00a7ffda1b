"""Tests of several searches of a tuned cell, each with a race and a pick, as in an arm of a sweep."""

import re
from statistics import fmean

import pytest
import yaml
from reproduced import TABLE, TUNE, TUNED, assert_kills_end_equal
from sweeps import World

from mlcl.errors import UserError
from mlcl.report.table_document import search_sections
from mlcl.results.settings import cell_setting
from mlcl.results.table_trials import read_trials
from mlcl.service.engine.ledger import Ledger
from mlcl.service.tables.cost import plan_table
from mlcl.service.tables.origin import setting_hash
from mlcl.service.tables.trainings import TableTrainings
from mlcl.tracking import State

SPACE = {"space": TUNE["space"]["space"], "search": {"scheduler": "none"}}
SEVERAL = {
    **TUNED,
    "tune": {"space": SPACE, "trials": 18, "seeds": 6, "searches": 3, "race_seeds": 2, "confirm": 2},
}
NEIGHBOURS = {"evaluation.knn.k": {"choice": [1, 3]}, "evaluation.knn.lambda": {"float": [0.0, 0.5]}}
RACED = {**SPACE, "space": {**SPACE["space"], **NEIGHBOURS}}
METRICS = TABLE["metrics"]
ENTRANTS = 3, 3, 2
"""The numbers of settings in the race of each search: the best two trials and the job as written."""
SCOPES = ("warm_all", "warm_all_2", "warm_all_3")


def tuned(report):
    return report.cell("Warm", "All")


def change(metrics=METRICS, **more):
    return {**SEVERAL, "metrics": metrics, "tune": {**SEVERAL["tune"], **more}}


def told(trainings):
    """Returns settings, seeds, seeds of validation rows and metrics of trainings."""
    return [
        (
            training.settings,
            training.job["train"]["seed"],
            training.job["data"].get("validation_seed"),
            training.metrics,
        )
        for training in trainings
    ]


def stages(ledger, scope):
    """Returns the trials, the race and the confirmation of a search in a ledger."""
    scope_keys = [
        (key, confirmation.race)
        for key, confirmation in ledger.confirmations.items()
        if confirmation.scope == scope
    ]
    race_seeds, fresh_seeds = (
        [s for key, is_race in scope_keys if is_race == r for s in ledger.seeds_of(key)]
        for r in (True, False)
    )
    return [told(trainings) for trainings in (ledger.trials(scope=scope), race_seeds, fresh_seeds)]


@pytest.mark.parametrize("space", [SPACE, RACED])
def test_the_searches_of_a_cell_are_those_of_an_arm_of_a_sweep(tables, space):
    plan = tables.plan(change(space=space))
    report = tables.run(plan)
    assert report.state is State.COMPLETE
    job = next(cell for cell in plan.cells if cell.tuning).jobs[0]
    options = {"trials": 18, "seeds": 6, "searches": 3, "confirm": 2}
    sweep = World.run(tables, World.plan(tables, job, yaml.safe_dump(space), **options))
    assert tuned(report).search.metric == sweep.score == "val/accuracy"
    table_ledger, sweep_ledger = Ledger(report.folder), Ledger(sweep.folder)
    cell_stages = [stages(table_ledger, scope) for scope in SCOPES]
    assert cell_stages == [
        stages(sweep_ledger, scope) for scope in ("", *[s for s in sweep_ledger.searches if s])
    ]
    assert [[len(stage) for stage in search_stages] for search_stages in cell_stages] == [
        [6, 2 * count, 2] for count in ENTRANTS
    ]
    validation = [
        {rows for _, _, rows, _ in stage} for search_stages in cell_stages for stage in search_stages
    ]
    assert validation == [{rows} for rows in (None, 2, 3) for _ in range(3)]
    (arm,) = sweep.arms
    search_reprs = [re.sub(r"Warm, All, ", "", repr(search)) for search in tuned(report).search.searches]
    assert search_reprs == [repr(search) for search in arm.searches]


def test_races_choose_the_neighbours_of_a_cell(tables):
    tree = change(space=RACED, confirm=1, metrics={"Acc": "knn/test/accuracy"})
    report = tables.run(plan := tables.plan(tree, only=["warm/*"]))
    cell, ledger = tuned(report), Ledger(report.folder)
    assert not any(trial.chosen for scope in SCOPES for trial in ledger.trials(scope=scope))
    seeds = [
        (confirmation.scope, seed)
        for key, confirmation in ledger.confirmations.items()
        if not confirmation.race
        for seed in ledger.seeds_of(key)
    ]
    for search, scope in zip(cell.search.searches, SCOPES, strict=True):
        knn = next(entrant.knn for entrant in search.race if entrant.name == search.pick)
        assert knn == {"k": 3, "lambda": 0.5, "temperature": 1.0}
        for job in (seed.job for name, seed in seeds if name == scope):
            assert job["evaluation"]["knn"] == {**job["evaluation"]["knn"], **knn, "grid": None}
    assert {"evaluation.knn.k": 3, "evaluation.knn.lambda": 0.5}.items() <= cell.settings.items()
    assert list(cell.figures[0].values) == [seed.metrics["knn/test/accuracy"] for _, seed in seeds]
    (tuned_cell,) = TableTrainings(plan, tables.home).tuned
    for cell_search in tuned_cell.searches(ledger):  # the metric that the races compare
        assert cell_search.validation == fmean(seed.metrics["knn/val/accuracy"] for seed in cell_search.seeds)
        assert cell_search.validation != fmean(seed.score for seed in cell_search.seeds)


def test_each_search_races_without_test_and_its_pick_gets_fresh_seeds(tables):
    report = tables.run(tables.plan(SEVERAL))
    ledger, cell = Ledger(report.folder), tuned(report)
    for number, scope in enumerate(SCOPES):
        _, race, fresh_seeds = stages(ledger, scope)
        assert {seed for _, seed, _, _ in race} == {1000 * number + 501, 1000 * number + 502}
        assert not any("test/accuracy" in metrics for *_, metrics in race)
        assert [seed for _, seed, _, _ in fresh_seeds] == [1000 * number + 1, 1000 * number + 2]
        search = cell.search.searches[number]
        best = max(search.race, key=lambda entrant: entrant.mean)
        assert (search.trials, search.pick, len(search.race)) == (6, best.name, ENTRANTS[number])
        values = [cell.figures[0].values[place] for place in cell.searches[number]]
        assert values == [metrics["test/accuracy"] for *_, metrics in fresh_seeds]
    ((_, verdict),) = report.verdicts
    assert (verdict.treated.searches, verdict.treated.trainings, verdict.single) == (3, 6, ())
    assert cell_setting(cell, "", ()).searches == ((1, 2), (1001, 1002), (2001, 2002))
    assert cell_setting(report.cell("Cold", "All"), "", ()).searches == ()
    best = max(range(3), key=lambda n: sum(s.score for s in cell.trainings[2 * n : 2 * n + 2]))
    assert cell.settings == cell.trainings[2 * best].settings
    ((_, _, races),) = (section.blocks for section in search_sections(report))
    assert len(races.blocks) == 3


def test_a_table_with_races_that_is_killed_ends_as_an_unbroken_one(world):
    assert_kills_end_equal(world, SEVERAL, 5, only=["warm/*"])


def test_searches_and_a_race_are_added_to_a_table_that_has_one_search(tables):
    one_search = {**TUNED, "tune": {"space": SPACE, "trials": 6, "seeds": 2}}
    first_report = tables.run(tables.plan(one_search))
    training_count = len(tables.trained())
    second_report = tables.run(tables.plan(SEVERAL))
    assert (second_report.id, second_report.state) == (first_report.id, State.COMPLETE)
    before, after = (
        Ledger(report.folder).trials(scope="warm_all") for report in (first_report, second_report)
    )
    assert [trial.key for trial in before] == [trial.key for trial in after]
    is_same_pick = tuned(second_report).search.searches[0].pick == tuned(first_report).search.searches[0].pick
    assert len(tables.trained()) - training_count == 2 * 6 + 2 * sum(ENTRANTS) + 2 * 2 + (
        0 if is_same_pick else 2
    )


def test_the_plan_counts_races_and_a_finished_table_has_nothing_left(tables):
    trainings = plan_table(tables.plan(SEVERAL), tables.home)["trainings"]
    counts = trainings["tuned"]["warm/all"]
    assert [counts[name] for name in ("trials", "race", "seeds", "left")] == [18, 18, 6, 42]
    report = tables.run(tables.plan(SEVERAL))
    after = plan_table(tables.plan(SEVERAL), tables.home)["trainings"]
    assert (after["missing"], after["tuned"]["warm/all"]["left"]) == (0, 0)
    training_count = len(tables.trained())
    assert tuned(tables.run(tables.plan(SEVERAL))).figures == tuned(report).figures
    assert len(tables.trained()) == training_count


def test_a_part_of_a_table_is_taken_over_with_its_searches(tables):
    part = tables.run(tables.plan(SEVERAL, only=["warm/*"]))
    training_count = len(tables.trained())
    whole = tables.run(tables.plan(SEVERAL))
    assert len(tables.trained()) - training_count == 2  # only the seeds of the other cell are trained
    assert tuned(whole).figures == tuned(part).figures
    other_report = tables.run(tables.plan(change(searches=2), only=["warm/*", "cold/*"]))
    assert other_report.state is State.COMPLETE


def test_a_row_follows_the_control_search_by_search(tables):
    held_key, own_key = "objective.heads.detail.temperature", "train.lr"
    base_tune = {**SEVERAL["tune"], "trials": 8, "seeds": 2, "searches": 2}
    space = {"space": {**SPACE["space"], own_key: {"log_float": [0.001, 0.1]}}, "search": SPACE["search"]}
    follower_tune = {**base_tune, "space": space, "control": "Base", "hold": [held_key]}
    rows = {"Warm": {"tune": follower_tune, "set": {"train.weight_decay": 0.02}}, "Base": {"tune": base_tune}}
    report = tables.run(tables.plan({"rows": rows}))
    assert report.state is State.COMPLETE
    ledger = Ledger(report.folder)
    values = []
    for suffix in ("", "_2"):
        (pick,) = [
            confirmation
            for confirmation in ledger.confirmations.values()
            if confirmation.scope == f"base_all{suffix}" and not confirmation.race
        ]
        trials = ledger.trials(scope=f"warm_all{suffix}")
        values.append(pick.job["objective"]["heads"]["detail"]["temperature"])
        assert {trial.job["objective"]["heads"]["detail"]["temperature"] for trial in trials} == {values[-1]}
        assert len(trials) == 4
    assert values[0] != values[1]
    ((_, verdict),) = report.verdicts
    assert (verdict.reference.label, verdict.reference.searches, verdict.treated.searches) == ("Base", 2, 2)


def test_a_search_without_a_complete_trial_has_no_race_and_the_cell_is_missing(tables):
    tables.formula.fails = lambda job, _epoch: job.data.validation_seed == 2
    report = tables.run(tables.plan(SEVERAL))
    assert (report.state, report.missing) == (State.FAILED, ["warm/all Acc"])
    missing_flags = [
        None in [tuned(report).runs[place] for place in places] for places in tuned(report).searches
    ]
    assert missing_flags == [False, True, False]
    assert [len(search.race) for search in tuned(report).search.searches] == [3, 0, 2]


def test_what_stands_in_the_file_by_default_changes_nothing(tables):
    trees = [TUNED, {**TUNED, "tune": {**TUNE, "searches": 1, "race_seeds": 0}}]
    plans = [tables.plan(tree) for tree in trees]
    assert len({TableTrainings(plan, tables.home).identity for plan in plans}) == 1
    hashes = [
        setting_hash(plan.cells[1], ["train.seed"])
        for plan in [*plans, tables.plan(SEVERAL), tables.plan(change(confirm=3))]
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    # A table ignores `race_seeds` in a space's own `search`, which applies to sweeps.
    tune_tree = {**TUNE, "space": {**SPACE, "search": {"scheduler": "none", "race_seeds": 2}}}
    report = tables.run(tables.plan({**TUNED, "tune": tune_tree}))
    assert [confirmation.race for confirmation in Ledger(report.folder).confirmations.values()] == [False]


def test_the_records_name_search_and_stage(tables):
    report = tables.run(tables.plan(SEVERAL))
    trials = read_trials(report.folder / "trials.parquet")
    counts = trials.groupby(["search", "stage"]).size().to_dict()
    assert counts == {
        (n, stage): count
        for n, entrants in enumerate(ENTRANTS, 1)
        for stage, count in (("search", 6), ("race", 2 * entrants), ("confirmation", 2))
    }
    assert not any("test/accuracy" in metrics for metrics in trials[trials.stage == "race"].metrics)


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (change(race_seeds=0), "confirm goes with race_seeds"),
        (change(searches=0), "tune.searches"),
        (change(race_seeds=500), "tune.race_seeds"),
        (
            change(
                space={**SPACE, "search": {"metric": ["val/accuracy", "val/macro_f1"], "scheduler": "none"}}
            ),
            "a race compares one metric",
        ),
        (change(space=RACED, metrics={"Acc": "knn_best/test/accuracy"}), "knn_best/test/accuracy"),
    ],
)
def test_what_cannot_race_is_refused(tables, tree, text):
    with pytest.raises(UserError, match=text) as error:
        tables.run(tables.plan({**TABLE, **tree}))
    assert "\n" not in error.value.line()
    assert not list(tables.home.glob("tables/mlcl-*"))


def test_a_baseline_is_paired_with_the_searches_beside_it(tables):
    columns = {"All": {"set": {"data.subset": {"n": 24}}}}
    tree = {
        **SEVERAL,
        "rows": {
            "Guess": {"tune": False, "set": {"baseline": "majority"}},
            "Warm": {},
            "Cold": {"tune": False, **TABLE["rows"]["Cold"]},
        },
        "columns": columns,
        "seed_keys": ["train.seed", "data.subset.seed"],
        "ranks": {"control": "Warm", "rope": 0.01},
    }
    report = tables.run(tables.plan(tree))
    guess_cell = report.cell("Guess", "All")
    assert [training.seed for training in guess_cell.trainings] == [1, 2, 1001, 1002, 2001, 2002]
    assert guess_cell.data == tuned(report).data
    assert [training.seed for training in report.cell("Cold", "All").trainings] == [0, 1]
    (column, verdict), (_, other_verdict) = report.verdicts
    assert (column, verdict.treated.label, verdict.reference.label) == ("All", "Guess", "Warm")
    assert (other_verdict.treated.label, other_verdict.paired) == ("Cold", "")
    values = guess_cell.figures[0].values
    assert verdict.paired == ("search" if len(set(values)) > 1 else "")
