"""Tests of settings named by the words of a command: sweeps, settings, runs, lists of runs, and cells."""

from dataclasses import replace
from pathlib import Path

import pytest
from ledgers import recorded
from report.made_up_runs import Store

from mlcl.config import Goal
from mlcl.errors import UserError
from mlcl.results.cell_result import CellResult, FigureResult
from mlcl.results.comparison import compare_settings
from mlcl.results.runs import Runs
from mlcl.results.settings import find_settings
from mlcl.results.sweep_result import SweepResult
from mlcl.results.table_result import TableResult
from mlcl.results.training_result import SettingResult, TrainingResult
from mlcl.significance.roles import Role
from mlcl.store import RunFolders
from mlcl.tracking import State, Tracker

TWO = {"as written": {0: 0.5, 1: 0.4}, "trial 1": {0: 0.6}}


@pytest.fixture(scope="module")
def names(store):
    """Stores sweeps and a table whose names are hard to tell apart or need quotes."""
    store.sweep("three", {name: {0: 0.5, 1: 0.6} for name in ("as written", "trial 3", "trial 9")})
    labels = ("as written", "majority", "trial 3", "trial 1")
    store.sweep("grown", {name: {0: 0.5} for name in labels}, baselines=["trial 1"], fitted=["majority"])
    store.sweep("bare", {})
    store.sweep("it's -5%-", {"other": {0: 0.5}})
    for name in ("a:b", 'it\'s "5%"', "it's", "shortened once", "twofold a", "twofold b"):
        store.sweep(name, TWO)
    store.table("t4", {("Hotel", "CE"): accuracies(0.5, 0.5), ("Hotel", "CE, wide"): accuracies(0.9, 0.9)})


def accuracies(*values, **how):
    """Returns the runs of a cell, as `Store.table` takes them."""
    return [None if value is None else {"metrics": {"test/accuracy": value}, **how} for value in values]


def values_of(setting):
    return {seed: run.metrics["test/accuracy"] for seed, run in setting.runs.items()}


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (["three"], ["as written", "trial 3", "trial 9"]),
        (["three:trial 3"], ["trial 3"]),
        # A trained baseline is the reference, even if it came later, whichever name it has.
        (["grown"], ["trial 1", "as written", "trial 3", "majority"]),
        # The words tell two settings of one name apart.
        (["a:b:as written", "three:as written", "three:trial 3"],
         ["a:b:as written", "three:as written", "trial 3"]),
        (["it's:as written"], ["as written"]),
        (['it\'s "5%":trial 1'], ["trial 1"]),
        # Only one name begins with this text.
        (["short"], ["as written", "trial 1"]),
        (["short:trial 1"], ["trial 1"]),
        (["Hotel, CE", "Hotel, CE, wide"], ["Hotel, CE", "Hotel, CE, wide"]),
    ],
)  # fmt: skip
def test_words_name_settings(store, names, words, labels):
    assert [setting.label for setting in find_settings(Runs(store.tracker), words)] == labels


@pytest.mark.parametrize(
    ("words", "problem"),
    [(["threw"], "names no run and no sweep; did you mean three?"),
     (["both \" and '"], "names no run and no sweep"),
     (["three:trial 4"], "no such setting of the sweep; found: three:trial 4; allowed: as written; trial 3"),
     (["bare"], "this sweep has confirmed no setting on fresh seeds"),
     (["three", "three:trial 3"], "names runs that are named already; found: three:trial 3"),
     (["twofold"], "is the beginning of several names; found: twofold; allowed: twofold a, twofold b"),
     (["t4"], "name the cells of a table; found: t4; allowed: Hotel, CE; Hotel, CE, wide")],
)  # fmt: skip
def test_words_that_name_nothing(store, names, words, problem):
    with pytest.raises(UserError) as error:
        find_settings(Runs(store.tracker), words)
    assert problem in error.value.line()


def test_a_run_of_a_sweep_stands_for_its_setting_there(store):
    for name, value in (("early", 0.5), ("late", 0.9)):
        store.sweep(name, {"as written": {1: value, 2: value}})
    (sweep_setting,) = find_settings(Runs(store.tracker), ["early:as written"])
    (run_setting,) = find_settings(Runs(store.tracker), [sweep_setting.runs[1].run_id])
    assert (run_setting.label, run_setting.runs, values_of(run_setting)) == (
        "as written",
        sweep_setting.runs,
        {1: 0.5, 2: 0.5},
    )


def picks_of(arm, role, lr, values):
    """Yields the picks of an arm's searches, each with the test values of its seeds."""
    for search, seed_values in enumerate(values, start=1):
        name = f"{arm} {search}"
        seeds = []
        for seed, value in enumerate(seed_values, start=1000 * search):
            metrics, log = {"test/accuracy": value, "val/accuracy": value}, f"{name}-{seed}"
            seeds.append(TrainingResult(log, name, State.COMPLETE, metrics=metrics, seed=seed, log=log))
        params = {"lr": lr * search, "epochs": 3}
        yield SettingResult(
            name, (name,), State.COMPLETE, {}, tuple(seeds), name, role, params=params, arm=arm, search=search
        )


def test_a_sweep_of_several_searches_is_compared_by_its_arms_with_the_sweeps_verdict(store):
    picks = (
        *picks_of("heads", Role.MODEL, 0.1, [(0.70, 0.71), (0.60, 0.61), (0.80, 0.81)]),
        *picks_of("control", Role.CONTROL | Role.BASELINE, 0.2, [(0.50, 0.51), (0.40, 0.42), (0.60, 0.61)]),
    )
    goals, fields = (Goal("val/accuracy", "max"),), ("val/accuracy", "max", ())
    sweep = SweepResult("id-of-arms", "arms", State.COMPLETE, "", Path(), goals, *fields, picks)
    tags = {"mlcl.name": "arms", "mlcl.id": "id-of-arms", "mlcl.log": "id-of-arms"}
    parent = store.add("sweeps", "sweep", name="arms", tags=tags)
    for search_pick in picks:
        for training in search_pick.seeds:
            store.add(
                "sweeps", "confirmation", seed=training.seed, parent=parent, tags={"mlcl.log": training.log}
            )
    store.store(parent, sweep)
    control, heads = settings = find_settings(Runs(store.tracker), ["arms"])
    assert (control.label, heads.word) == ("control", "arms:heads")
    assert heads.searches == ((1000, 1001), (2000, 2001), (3000, 3001))
    assert heads.job == {"epochs": "3"}
    (row,) = compare_settings(settings).rows
    assert row.verdict == sweep.verdicts[0]
    assert row.verdict.treated.searches == 3
    assert heads.picks == ("heads 1", "heads 2", "heads 3")
    (arm, pick) = find_settings(Runs(store.tracker), ["arms:control", "arms:heads 2"])
    assert (arm.searches, pick.searches) == (control.searches, ())
    with pytest.raises(UserError, match="allowed: control; heads; control 1; control 2; control 3; heads 1"):
        find_settings(Runs(store.tracker), ["arms:head"])


def test_a_run_stands_for_its_setting_the_latest_of_each_seed(store):
    first = store.setting("plain", {0: 0.1, 1: 0.2}, params={"lr": 1}, tags={"mlcl.lower_is_better": '["f"]'})
    store.setting("plain", {0: 0.5}, params={"lr": 1}, state="FAILED")
    store.setting("plain", {0: 0.6}, params={"lr": 2})
    store.setting("plain", {0: 0.7}, params={"lr": 1}, data="other")
    store.setting("elsewhere", {0: 0.8}, params={"lr": 1})
    (latest_id,) = store.setting("plain", {1: 0.3}, params={"lr": 1})
    (setting,) = find_settings(Runs(store.tracker), [first[0]])
    assert {seed: run.run_id for seed, run in setting.runs.items()} == {0: first[0], 1: latest_id}
    assert setting.lower_is_better == {"f"}
    (named_setting,) = find_settings(
        Runs(store.tracker), [first[1]]
    )  # the run that is named stands for its seed
    assert {seed: run.run_id for seed, run in named_setting.runs.items()} == {0: first[0], 1: first[1]}
    with pytest.raises(UserError, match=r"names runs that are named already; .*allowed: ID,ID,"):
        find_settings(Runs(store.tracker), [first[0], latest_id])
    (listed_setting,) = find_settings(Runs(store.tracker), [",".join(first)])
    assert {seed: run.run_id for seed, run in listed_setting.runs.items()} == {0: first[0], 1: first[1]}


def test_runs_on_other_validation_rows_are_of_one_setting_and_pair_on_equal_rows_alone(store):
    ids = {
        lr: [
            store.setting("redrawn", {seed: lr + seed / 10}, data=f"rows{draw}", params=params)[0]
            for seed, draw in enumerate((None, 2, 3))
            for params in [{"data.validation_seed": draw, "lr": lr} if draw else {"lr": lr}]
        ]
        for lr in (0.1, 0.2)
    }
    setting, other = find_settings(Runs(store.tracker), [ids[0.1][1], ",".join(ids[0.2])])
    assert values_of(setting) == pytest.approx({0: 0.1, 1: 0.2, 2: 0.3})
    (row,) = compare_settings([setting, other], "accuracy").rows
    assert (row.verdict.treated.trainings, row.differs) == (3, ("lr",))
    (third,) = store.setting("redrawn", {1: 0.5}, data="rows9", params={"data.validation_seed": 9, "lr": 3})
    with pytest.raises(UserError, match=r"key data.validation_seed: .*with different seeds.*found: .* 9"):
        compare_settings([setting, *find_settings(Runs(store.tracker), [third])], "accuracy")


def test_runs_on_other_validation_rows_of_other_data_are_of_another_setting(store):
    def run(seed, fingerprint):
        params = {"data.validation_seed": seed}
        tags = {"mlcl.stored_fingerprint": fingerprint}
        fields = {
            "data": f"{fingerprint} rows{seed}",
            "params": params,
            "tags": tags,
            "metrics": {"accuracy": 0.5},
        }
        return store.add("changed", seed=seed, **fields)

    before, after = [run(seed, "data1") for seed in (1, 2)], [run(seed, "data2") for seed in (3, 4)]
    setting, other = find_settings(Runs(store.tracker), [before[0], after[0]])
    assert (list(setting.runs), list(other.runs)) == ([1, 2], [3, 4])
    with pytest.raises(UserError, match=r"trained on different data; .*data1 rows1.*data2 rows3"):
        find_settings(Runs(store.tracker), [f"{before[0]},{after[0]}"])


def test_a_list_is_of_complete_runs_of_one_setting_one_a_seed_and_of_no_search_trial(store):
    first, second, repeated_id = store.setting("listed", {0: 0.5, 1: 0.5}) + store.setting("listed", {0: 0.6})
    (failed_id,) = store.setting("listed", {2: 0.5}, state="FAILED")
    (trial,) = store.setting("listed", {3: 0.5}, kind="trial")
    (other,) = store.setting("listed", {4: 0.5}, params={"lr": 1})
    (broken_id,) = store.setting("broken", {0: 0.5}, state="FAILED")
    (setting,) = find_settings(Runs(store.tracker), [f"{first},{second}"])
    assert list(setting.runs) == [0, 1]
    for word, problem in (
        (f"{first},{repeated_id}", "a seed twice"), (f"{first},{failed_id}", "not complete"),
        (f"{first},{trial}", "is not pooled"), (f"{first},{other}", "differ in more than the seed.*lr$"),
        (broken_id, "no complete run"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=problem):
            find_settings(Runs(store.tracker), [word])


def test_plain_runs_are_named_by_what_tells_them_apart(store):
    shared_params = {"log10.train.lr": 1, "x": 1}
    ids = [
        store.setting("apart", {0: 0.5, 1: 0.6}, params={"train.lr": lr, **shared_params})[0]
        for lr in (0.1, 0.2)
    ]
    settings = find_settings(Runs(store.tracker), ids)
    assert [(setting.label, setting.searched) for setting in settings] == [
        ("lr 0.1", False),
        ("lr 0.2", False),
    ]


def test_a_run_of_a_cell_stands_for_the_cell_though_each_seed_draws_rows_of_its_own(store):
    """Seeds draw their own rows, as with seed_keys of tables; equal seeds of two cells have equal draws."""
    draws = ("data.subset.seed", "data.label_noise.seed", "data.split_seed")
    cells = {
        ("It's", column): [
            {
                "metrics": {"test/accuracy": value + seed / 10},
                "params": {"data.subset.n": 30, "loss": column, **dict.fromkeys(draws, seed)},
                "data": f"split{seed}",
            }
            for seed in range(3)
        ]
        for column, value in (('"CE"', 0.5), ("MLCL", 0.6))
    }
    ids = store.table("draws", cells)
    words = ['It\'s, "CE"', "It's, MLCL"]
    settings = find_settings(Runs(store.tracker), words)
    (row,) = compare_settings(settings, "accuracy").rows
    assert (row.verdict.treated.trainings, row.differs) == (3, ("loss",))
    assert row.verdict.difference == pytest.approx(0.1)
    (cell_setting,) = find_settings(Runs(store.tracker), [ids["It's", '"CE"', 1]])
    assert (cell_setting.label, cell_setting.runs) == (words[0], settings[0].runs)


def test_a_cell_with_neighbours_of_its_own(store):
    """Two cells share runs that were trained elsewhere, and differ in the settings of the neighbours."""
    for seed in (0, 1):
        metrics = {"test/accuracy": 0.5, "knn/test/accuracy": 0.6, "knn/test/macro_f1": 0.4, "train/loss": 2}
        store.add("inns", seed=seed, metrics=metrics, tags={"mlcl.log": f"inn-{seed}"})
    table = store.add("inns", "table", name="inns", tags={"mlcl.name": "inns", "mlcl.id": "inns"})
    cells = [
        CellResult(
            f"k = {k}", "Inn", f"{k}", (FigureResult("f", "knn/test/accuracy", None, (value,) * 2, None),),
            ("inn-0", "inn-1"), params={"evaluation.knn.k": k}, neighbours=True,
            trainings=tuple(
                TrainingResult(
                    f"inn-{seed}", "", State.COMPLETE, seed=seed, log=f"inn-{seed}",
                    metrics={"test/accuracy": 0.5, "knn/test/accuracy": value},
                )
                for seed in (0, 1)
            ),
        )
        for k, value in ((1, 0.7), (9, 0.8))
    ]  # fmt: skip
    fields = ("inns", "inns", "", "", "", "", State.COMPLETE, "", Path(), tuple(cells), "share", {"f": True})
    store.store(table, TableResult(*fields))
    setting, other = find_settings(Runs(store.tracker), ["k = 1, Inn", "k = 9, Inn"])
    assert [run.metrics["knn/test/accuracy"] for run in other.runs.values()] == [0.8, 0.8]
    expected_metrics = {"test/accuracy": 0.5, "knn/test/accuracy": 0.7, "train/loss": 2}
    assert [dict(run.metrics) for run in setting.runs.values()] == [expected_metrics] * 2


def test_a_cell_is_that_of_the_latest_table_that_has_it(store):
    store.table("first", {("Motel", "CE"): accuracies(0.1, 0.2)})
    store.table("again", {("Motel", "CE"): accuracies(None, 0.3)})
    store.add("young", "table", name="young", tags={"mlcl.name": "young", "mlcl.id": "young"})  # no document
    (setting,) = find_settings(Runs(store.tracker), ["Motel, CE"])
    assert values_of(setting) == {1: 0.3}


def test_the_latest_is_the_last_that_is_in_no_other_and_of_a_home_the_last_that_it_began(tmp_path):
    store, names = Store(Tracker(tmp_path, None)), ("night-1", "night-2", "night-3")  # a store of its own
    store.add("lone", name="lone", seed=0, tags={"mlcl.id": "lone-1"})
    sweep = store.sweep("latest of all", TWO)
    assert [run.info.run_id for run in Runs(store.tracker).find_named("@last")] == [sweep]
    for name in names:
        recorded(RunFolders(tmp_path, "sweeps").new_folder(name))

    def add(name):
        tags = {"mlcl.owner": name, "mlcl.log": name, "mlcl.id": name, "mlcl.name": "night"}
        return store.add("sweeps", "sweep", name=name, tags=tags)

    ids = [add(name) for name in (names[1], names[2], names[0])]  # night-1 has the latest time
    runs = Runs(store.tracker)
    assert [run.info.run_id for run in runs.find_named("night")] == [ids[1], ids[0], ids[2]]
    assert [run.info.run_id for run in runs.find_named("@last")] == [ids[1]]
    foreign_id = store.add("sweeps", "sweep", tags={"mlcl.log": "elsewhere", "mlcl.name": "night"})
    assert [run.info.run_id for run in runs.find_named("night")] == [foreign_id, ids[1], ids[0], ids[2]]
    assert [run.info.run_id for run in runs.find_named("@last")] == [foreign_id]


def test_a_setting_without_a_complete_seed_is_left_out_of_its_whole_sweep(store):
    store.sweep("partly", {"as written": {0: 0.5}, "trial 1": {}})
    runs = Runs(store.tracker)
    assert [setting.label for setting in find_settings(runs, ["partly"])] == ["as written"]
    with pytest.raises(UserError, match="no complete run; found: partly:trial 1"):
        find_settings(runs, ["partly:trial 1"])


def test_an_arm_with_the_name_of_its_only_setting_is_named_once(store):
    picks = (
        *picks_of("heads", Role.MODEL, 0.1, [(0.70, 0.71), (0.60, 0.61)]),
        replace(next(picks_of("majority", Role.BASELINE, 0.2, [(0.5, 0.5)])), name="majority"),
    )
    goals, fields = (Goal("val/accuracy", "max"),), ("val/accuracy", "max", ())
    sweep = SweepResult("id-of-once", "once", State.COMPLETE, "", Path(), goals, *fields, picks)
    tags = {"mlcl.name": "once", "mlcl.id": "id-of-once", "mlcl.log": "id-of-once"}
    parent = store.add("sweeps", "sweep", name="once", tags=tags)
    for training in (seed for pick in picks for seed in pick.seeds):
        store.add(
            "sweeps", "confirmation", seed=training.seed, parent=parent, tags={"mlcl.log": training.log}
        )
    store.store(parent, sweep)
    assert [setting.label for setting in find_settings(Runs(store.tracker), ["once:majority"])] == [
        "majority"
    ]
