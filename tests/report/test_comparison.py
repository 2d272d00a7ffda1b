"""Comparisons against figures by hand, and everything that cannot be compared."""

import json
from pathlib import Path

import numpy as np
import pytest
from ledgers import recorded
from report.made_up_runs import Store
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.errors import UserError
from mlcl.results.cell_result import CellResult, FigureResult
from mlcl.results.comparison import compare_settings
from mlcl.results.comparison_text import as_dict, as_latex, as_markdown, grid, notes, smallest_p_note, title
from mlcl.results.runs import Runs
from mlcl.results.settings import find_settings
from mlcl.results.sweep_result import TrainingResult
from mlcl.results.table_result import TableResult
from mlcl.significance.paired_tests import compare_paired, holm
from mlcl.store import RunFolders
from mlcl.tracking import State, Tracker

CE = {0: 0.50, 1: 0.52, 2: 0.49, 3: 0.51, 4: 0.53, 5: 0.50}
SUPCON = {0: 0.55, 1: 0.56, 2: 0.55, 3: 0.53, 4: 0.58, 5: 0.57}
MLCL = {0: 0.53, 1: 0.51, 2: 0.52, 3: 0.50, 4: 0.54, 5: 0.51, 6: 0.9}


@pytest.fixture(scope="module")
def sweep(store):
    """A sweep's name: three settings on six seeds, one of them on a seventh."""
    store.sweep("three", {"as written": CE, "trial 3": SUPCON, "trial 9_b": MLCL})
    return "three"


@pytest.fixture
def found(store, sweep):
    return compare_settings(find_settings(Runs(store.tracker), [sweep]), "accuracy")


def test_a_sweep_stands_for_its_confirmed_settings_the_first_is_the_reference(found):
    assert found.metric == "test/accuracy"
    assert found.reference.label == "as written"
    assert [row.setting.label for row in found.rows] == ["trial 3", "trial 9_b"]


def test_figures_are_those_of_the_pairs(found):
    tests = [
        compare_paired([CE[seed] for seed in range(6)], [other[seed] for seed in range(6)])
        for other in (SUPCON, MLCL)
    ]
    assert [row.paired for row in found.rows] == tests
    assert [row.p for row in found.rows] == holm([test.p for test in tests])
    assert [row.seeds for row in found.rows] == [tuple(range(6))] * 2
    assert [row.unpaired for row in found.rows] == [(), (6,)]


def test_what_is_decided_and_what_is_not(found):
    better, undecided = found.rows
    assert (better.p, better.verdict, better.further) == (0.0625, "undecided", better.further)
    assert better.further > 0
    alone = compare_settings([found.reference, better.setting], "accuracy")
    assert (alone.rows[0].p, alone.rows[0].verdict, alone.rows[0].further) == (
        0.03125,
        "better",
        0,
    )
    turned = compare_settings([better.setting, found.reference], "accuracy")
    assert turned.rows[0].verdict == "worse"
    assert undecided.verdict == "undecided"


def test_less_is_better_of_a_loss(found):
    less = compare_settings([found.reference, found.rows[0].setting], "hamming_loss")
    assert (less.metric, less.mode, less.rows[0].verdict) == ("test/hamming_loss", "min", "better")
    assert less.rows[0].paired.difference < 0


@pytest.mark.parametrize("spelled", ["Hamming-Loss", "hamming", "test/Hamming loss", "test/ACC"])
def test_a_metric_is_matched_loosely(found, spelled):
    name = "test/accuracy" if "ACC" in spelled else "test/hamming_loss"
    assert compare_settings([found.reference, found.rows[0].setting], spelled).metric == name


@pytest.mark.parametrize(
    ("tags", "verdicts"),
    [
        ({"mlcl.lower_is_better": '["misses", "hops_*"]'}, ["worse", "worse", "worse", "better"]),
        ({}, ["better"] * 4),
    ],
)
def test_the_runs_say_the_better_side_of_metrics_of_plugin_files(store, tags, verdicts):
    metrics = ["test/misses", "test/misses_at_half", "test/hops_topic", "test/hits"]
    ids = [
        [
            store.add(
                "own", seed=seed, params={"more": more, "own": len(tags)},
                metrics=dict.fromkeys(metrics, seed + more), tags=tags,
            )
            for seed in range(6)
        ]
        for more in (0, 1)
    ]  # fmt: skip
    settings = find_settings(Runs(store.tracker), [",".join(each) for each in ids])
    assert [compare_settings(settings, metric).rows[0].verdict for metric in metrics] == verdicts


def test_a_better_side_is_said_only_where_there_is_one(store):
    metrics = {
        "time/train_seconds": "worse",
        "train/lr": "higher",
        "train/loss": "worse",
        "knn/val/map": "better",
    }
    ids = [
        [
            store.add("sides", seed=seed, params={"slow": slow}, metrics=dict.fromkeys(metrics, seed + slow))
            for seed in range(6)
        ]
        for slow in (0, 1)
    ]
    settings = find_settings(Runs(store.tracker), [",".join(each) for each in ids])
    found = [compare_settings(settings, metric) for metric in metrics]
    assert [each.rows[0].verdict for each in found] == list(metrics.values())
    assert ["better" in title(each) for each in found] == [True, False, True, True]


def test_a_full_name_is_taken_as_it_is(found):
    settings = [found.reference, found.rows[0].setting]
    assert compare_settings(settings, "val/accuracy").metric == "val/accuracy"


def test_one_setting_of_a_sweep_and_a_run(store, sweep):
    runs = Runs(store.tracker)
    (one,) = find_settings(runs, [f"{sweep}:trial 3"])
    assert {seed: run.metrics["test/accuracy"] for seed, run in one.runs.items()} == SUPCON
    (same,) = find_settings(runs, [one.runs[2].run_id])
    assert same.runs == one.runs


def test_a_run_stands_for_its_setting_the_latest_of_each_seed(store):
    first = store.setting("plain", {0: 0.1, 1: 0.2}, params={"lr": 1})
    store.setting("plain", {0: 0.5}, params={"lr": 1}, state="FAILED")
    store.setting("plain", {0: 0.6}, params={"lr": 2})
    store.setting("plain", {0: 0.7}, params={"lr": 1}, data="other")
    store.setting("elsewhere", {0: 0.8}, params={"lr": 1})
    again = store.setting("plain", {1: 0.3}, params={"lr": 1})
    (found,) = find_settings(Runs(store.tracker), [first[0]])
    assert {seed: run.run_id for seed, run in found.runs.items()} == {0: first[0], 1: again[0]}
    (listed,) = find_settings(Runs(store.tracker), [",".join(first)])
    assert {seed: run.run_id for seed, run in listed.runs.items()} == {0: first[0], 1: first[1]}


def test_a_list_is_of_complete_runs_one_a_seed_and_of_no_search_trial(store):
    first, second, again = store.setting("listed", {0: 0.5, 1: 0.5}) + store.setting("listed", {0: 0.6})
    (failed,) = store.setting("listed", {2: 0.5}, state="FAILED")
    (trial,) = store.setting("listed", {3: 0.5}, kind="trial")
    runs = Runs(store.tracker)
    (found,) = find_settings(runs, [f"{first},{second}"])
    assert list(found.runs) == [0, 1]
    for other, said in ((again, "a seed twice"), (failed, "not complete"), (trial, "is not pooled")):
        with pytest.raises(UserError, match=said):
            find_settings(runs, [f"{first},{other}"])


def test_a_baseline_that_came_later_is_still_the_reference(store):
    settings = {"as written": CE, "majority": CE, "trial 3": SUPCON, "trial 1": MLCL}
    store.sweep("grown", settings, baselines=["trial 1"], fitted=["majority"])  # whatever they are called
    found = find_settings(Runs(store.tracker), ["grown"])
    assert [each.label for each in found] == ["trial 1", "as written", "trial 3", "majority"]


def test_what_each_seed_answers_for_itself_is_no_difference(store, searched):
    sweep = searched[1]
    assert len({seed.chosen["evaluation.knn.k"] for its in sweep.settings for seed in its.seeds}) > 1
    found = compare_settings(find_settings(Runs(store.tracker), [sweep.id]))
    assert found.metric == "test/accuracy"  # the formula knows no other on test
    assert not [key for row in found.rows for key in row.differs if key.startswith("evaluation.")]


def accuracies(*values, **how):
    """What `Store.table` takes of a cell."""
    return [None if value is None else {"metrics": {"test/accuracy": value}, **how} for value in values]


def test_cells_of_a_table(store):
    cells = {("Hotel", "CE"): accuracies(0.5, 0.5), ("Hotel", "CE, wide"): accuracies(0.9, 0.9)}
    ids = store.table("t4", cells)
    runs = Runs(store.tracker)
    (found,) = find_settings(runs, ["Hotel, CE"])
    assert [run.metrics["test/accuracy"] for run in found.runs.values()] == [0.5, 0.5]
    (same,) = find_settings(runs, [ids["Hotel", "CE", 1]])
    assert (same.label, same.runs) == ("Hotel, CE", found.runs)
    with pytest.raises(UserError, match=r"name the cells of a table.*Hotel, CE; Hotel, CE, wide"):
        find_settings(runs, ["t4"])


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
    found, other = find_settings(Runs(store.tracker), ["k = 1, Inn", "k = 9, Inn"])
    assert [run.metrics["knn/test/accuracy"] for run in other.runs.values()] == [0.8, 0.8]
    measured = {"test/accuracy": 0.5, "knn/test/accuracy": 0.7, "train/loss": 2}
    assert [dict(run.metrics) for run in found.runs.values()] == [measured] * 2


def test_a_cell_is_that_of_the_latest_table_that_has_it(store):
    store.table("first", {("Motel", "CE"): accuracies(0.1, 0.2)})
    store.table("again", {("Motel", "CE"): accuracies(None, 0.3)})
    store.add("young", "table", name="young", tags={"mlcl.name": "young", "mlcl.id": "young"})  # not written
    (found,) = find_settings(Runs(store.tracker), ["Motel, CE"])
    assert {seed: run.metrics["test/accuracy"] for seed, run in found.runs.items()} == {1: 0.3}


def test_each_seed_of_a_cell_may_draw_rows_of_its_own(store):
    """As tables' seed_keys ask for; equal seeds of two cells have made the same draws."""
    data_seeds = ("data.subset.seed", "data.label_noise.seed", "data.split_seed")
    cells = {
        ("Inn", column): [
            {
                "metrics": {"test/accuracy": value + seed / 10},
                "params": {"data.subset.n": 30, "loss": column, **dict.fromkeys(data_seeds, seed)},
                "data": f"split{seed}",
            }
            for seed in range(3)
        ]
        for column, value in (("CE", 0.5), ("MLCL", 0.6))
    }
    store.table("draws", cells)
    found = find_settings(Runs(store.tracker), ["Inn, CE", "Inn, MLCL"])
    (row,) = compare_settings(found, "accuracy").rows
    assert (row.seeds, row.differs) == ((0, 1, 2), ("loss",))
    assert row.paired.difference == pytest.approx(0.1)


@pytest.mark.parametrize("key", ["data.subset.seed", "data.label_noise.seed"])
def test_other_draws_from_the_data_do_not_pair(store, key):
    one, other = (
        store.setting(f"drawn {key}", {1: 0.5}, params={key: seed, "data.split_seed": seed})[0]
        for seed in (0, 7)
    )
    problem = (
        f"key {key}: these settings drew from the data with different seeds.*found: seed 1: \\w+ 0, \\w+ 7"
    )
    with pytest.raises(UserError, match=problem):
        compare_settings(find_settings(Runs(store.tracker), [one, other]), "accuracy")


def test_settings_of_one_name_are_told_apart_and_none_comes_twice(store, sweep):
    store.sweep("a:b", {"as written": {0: 0.5, 1: 0.4}})
    words = ["a:b:as written", f"{sweep}:as written", f"{sweep}:trial 3"]
    found = find_settings(Runs(store.tracker), words)
    assert [each.label for each in found] == [*words[:2], "trial 3"]
    with pytest.raises(UserError, match="names runs that are named already; found: three:trial 3"):
        find_settings(Runs(store.tracker), [sweep, f"{sweep}:trial 3"])


def test_a_figure_that_is_no_number_is_named_and_json_stays_valid(store):
    store.sweep("odd", {"as written": {0: 0.5, 1: 0.4, 2: float("nan")}, "trial 1": {0: 0.5, 1: 0.6}})
    settings = find_settings(Runs(store.tracker), ["odd"])
    written = json.loads(json.dumps(as_dict(compare_settings(settings, "accuracy")), allow_nan=False))
    assert written["reference"]["runs"]["2"]["value"] is None
    store.sweep("odder", {"as written": {0: 0.5, 1: 0.4}, "trial 1": {0: 0.5, 1: float("nan")}})
    with pytest.raises(
        UserError, match="test/accuracy is no number in some runs; found: trial 1, seed 1: nan"
    ):
        compare_settings(find_settings(Runs(store.tracker), ["odder"]), "accuracy")


def test_a_beginning_that_only_one_name_has_stands_for_it(store):
    runs = Runs(store.tracker)
    for name in ("shortened once", "twofold a", "twofold b"):
        store.sweep(name, {"as written": {0: 0.5}, "trial 1": {0: 0.6}})
    assert [each.label for each in find_settings(runs, ["short"])] == ["as written", "trial 1"]
    assert [each.label for each in find_settings(runs, ["short:trial 1"])] == ["trial 1"]
    with pytest.raises(
        UserError, match=r"begins several names; found: twofold; allowed: twofold a, twofold b"
    ):
        find_settings(runs, ["twofold"])


def test_last_is_the_latest_that_is_in_no_other(tmp_path):
    store = Store(Tracker(tmp_path, None))  # other tests' runs may be later
    store.add("lone", name="lone", seed=0, tags={"mlcl.id": "lone-1"})
    sweep = store.sweep("latest of all", {"as written": {0: 0.5}})
    (last,) = Runs(store.tracker).named("@last")
    assert last.info.run_id == sweep


def test_the_latest_of_a_home_is_the_last_that_it_began(tmp_path):
    store, names = Store(Tracker(tmp_path, None)), ("night-1", "night-2", "night-3")
    for name in names:
        recorded(RunFolders(tmp_path, "sweeps").new(name))
    ids = [  # the clock was set back before the first
        store.add(
            "sweeps",
            "sweep",
            name=name,
            tags={"mlcl.owner": name, "mlcl.log": name, "mlcl.id": name, "mlcl.name": "night"},
        )
        for name in (names[1], names[2], names[0])
    ]
    runs = Runs(store.tracker)
    assert [run.info.run_id for run in runs.named("night")] == [ids[1], ids[0], ids[2]]
    assert [run.info.run_id for run in runs.named("@last")] == [ids[1]]
    foreign = store.add("sweeps", "sweep", tags={"mlcl.log": "elsewhere", "mlcl.name": "night"})
    assert [run.info.run_id for run in runs.named("night")] == [foreign, ids[1], ids[0], ids[2]]
    assert [run.info.run_id for run in runs.named("@last")] == [foreign]


def test_plain_runs_are_named_by_what_tells_them_apart(store):
    ids = [
        store.setting(
            "apart", {0: 0.5, 1: 0.6}, params={"train.lr": lr, "log10.train.lr": 1, "x": 1}, name="mlcl-1"
        )[0]
        for lr in (0.1, 0.2)
    ]
    labels = [each.label for each in find_settings(Runs(store.tracker), ids)]
    assert labels == ["lr 0.1", "lr 0.2"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["threw"], "names no run and no sweep; did you mean three?"),
        (["both \" and '"], "names no run and no sweep"),
        (
            ["three:trial 4"],
            "no such setting of the sweep; found: three:trial 4; allowed: as written, trial 3",
        ),
        (["bare"], "this sweep has confirmed no setting on fresh seeds"),
    ],
)
def test_a_word_that_names_nothing(store, sweep, words, problem):
    store.sweep("bare", {})
    with pytest.raises(UserError) as error:
        find_settings(Runs(store.tracker), words)
    assert problem in error.value.line()


def test_a_name_with_both_quotes(store):
    store.sweep('it\'s "5%"', {"as written": {0: 0.5}})
    store.sweep("it's -5%-", {"other": {0: 0.5}})
    (found,) = find_settings(Runs(store.tracker), ['it\'s "5%"'])
    assert found.label == "as written"


def test_a_name_with_a_quote(store):
    store.sweep("it's", {"as written": {0: 0.5}})
    (found,) = find_settings(Runs(store.tracker), ["it's"])
    assert found.label == "as written"


def test_runs_that_are_not_one_setting_are_no_list(store):
    ids = [store.setting("list", {seed: 0.5}, params={"lr": seed, "wd": 1})[0] for seed in (0, 1)]
    with pytest.raises(UserError, match=r"differ in more than the seed.*allowed: lr$"):
        find_settings(Runs(store.tracker), [",".join(ids)])


def test_a_setting_without_a_complete_run(store):
    (id,) = store.setting("broken", {0: 0.5}, state="FAILED")
    with pytest.raises(UserError, match="no complete run"):
        find_settings(Runs(store.tracker), [id])


def test_what_cannot_be_paired(store, found):
    other = store.setting("apart", {0: 0.5, 1: 0.6}, data="data2")[0]
    seeds = store.setting("seeds", {8: 0.5, 9: 0.5})[0]
    runs = Runs(store.tracker)
    with pytest.raises(UserError, match=r"trained on different data.*seed 0: as written data1, run data2"):
        compare_settings([found.reference, *find_settings(runs, [other])], "accuracy")
    with pytest.raises(UserError, match=r"share no seed.*seeds 0 1 2 3 4 5; run: seeds 8 9"):
        compare_settings([found.reference, *find_settings(runs, [seeds])], "accuracy")
    with pytest.raises(UserError, match="needs two settings or more; found: as written"):
        compare_settings([found.reference], "accuracy")


def test_a_metric_that_is_not_there(store, found):
    with pytest.raises(UserError, match=r"no such metric; did you mean test/accuracy?"):
        compare_settings([found.reference, found.rows[0].setting], "test/acuracy")
    nan = store.setting("nan", {0: float("nan"), 1: 0.5})[0]
    with pytest.raises(UserError, match="no number in some runs"):
        compare_settings([found.reference, *find_settings(Runs(store.tracker), [nan])], "accuracy")


def test_a_fitted_baseline_has_no_neighbours_and_is_compared_by_its_figure_without(store):
    trained = [
        store.add("blend", seed=seed, params={"k": 3}, metrics={"knn_best/test/accuracy": 0.6 + seed / 100})
        for seed in range(3)
    ]
    fitted = [
        store.add("blend", seed=seed, params={"baseline": "tfidf_svm"}, metrics={"test/accuracy": 0.5})
        for seed in range(3)
    ]
    settings = find_settings(Runs(store.tracker), [",".join(each) for each in (fitted, trained)])
    compared = compare_settings(settings, "knn_best/test/accuracy")
    assert compared.rows[0].paired.difference == pytest.approx(0.11)
    said = f"{settings[0].label}: without neighbours, which a fitted baseline does not have."
    assert said in notes(compared)
    with pytest.raises(UserError, match="no such metric"):
        compare_settings(settings, "test/accuracy")


def test_two_fitted_baselines_that_no_seed_changes_are_not_tested(store):
    others = {seed: 0.5 + seed / 100 for seed in range(6)}
    figures = {
        "svm": dict.fromkeys(range(6), 0.4),
        "majority": dict.fromkeys(range(6), 0.1),
        "noisy": dict(others),
        "ours": {seed: value + 0.1 for seed, value in others.items()},
    }
    store.sweep("fixed", figures, fitted=["svm", "majority", "noisy"])
    settings = [find_settings(Runs(store.tracker), [f"fixed:{label}"])[0] for label in figures]
    found = compare_settings(settings, "accuracy")
    majority, noisy, ours = found.rows
    assert (majority.verdict, majority.p, majority.further) == ("not tested", None, None)
    assert [noisy.p, ours.p] == holm([noisy.paired.p, ours.paired.p])
    said = notes(found)
    assert said[0] == smallest_p_note([6, 6])
    assert said[1] == f"Not tested, for no seed changes them or {settings[0].label}: {settings[1].label}."
    assert not any(line.startswith(f"{settings[1].label}: ") for line in said)
    assert grid(found)[1][-3:] == ["", "", "not tested"]
    assert as_dict(found)["others"][0]["p_holm"] is None
    alone = compare_settings(settings[:2], "accuracy")
    assert notes(alone)[0].startswith("Not tested")
    assert compare_settings([settings[3], settings[0]], "accuracy").rows[0].verdict == "worse"


def test_fitted_baselines_of_a_whole_sweep_are_left_out_of_a_metric_that_they_do_not_have(store):
    plain = {seed: {"test/accuracy": seed} for seed in range(3)}
    trained = {seed: {**its, "unseen/1nn/test/accuracy": seed / 9} for seed, its in plain.items()}
    store.sweep("shots", {"as written": trained, "trial 4": trained, "majority": plain}, fitted=["majority"])
    whole = find_settings(Runs(store.tracker), ["shots"])
    compared = compare_settings(whole, "unseen/1nn/test/accuracy")
    assert [row.setting.label for row in compared.rows] == ["trial 4"]
    assert as_dict(compared)["left_out"] == ("majority",)
    said = "Left out, for a fitted baseline has no unseen/1nn/test/accuracy: majority."
    assert said in notes(compared)
    assert compare_settings(whole, "accuracy").left_out == ()
    with pytest.raises(UserError, match="as written has no such metric"):
        compare_settings(whole, "acuracy")
    with pytest.raises(UserError, match="two settings or more that have unseen/1nn/test/accuracy"):
        compare_settings([whole[0], whole[2]], "unseen/1nn/test/accuracy")
    named = find_settings(Runs(store.tracker), ["shots:as written", "shots:majority"])
    with pytest.raises(UserError, match="majority has no such metric"):
        compare_settings(named, "unseen/1nn/test/accuracy")


def test_on_paper(found):
    text, tex = as_markdown(found), as_latex(found)
    mean, spread = np.mean(list(CE.values())), np.std(list(CE.values()), ddof=1)
    assert f"| as written | 6 | {mean:.4f} ± {spread:.4f} |" in text
    assert r"trial 9\_b & 6" in tex
    assert tex.count(r" \\") == 4
    assert r"test/accuracy against as written (higher is better)" in tex
    said = notes(found)
    assert (
        said[0]
        == "6 pairs can reach p = 0.0625 over 2 tests, never 0.05: more seeds are needed to decide anything."
    )
    assert "trial 9_b: seeds without a partner, not in the difference: 6." in said
    assert "trial 3 differs in lr." in said


def test_a_mean_is_over_all_seeds_of_its_setting_and_the_difference_over_pairs(store):
    values = {0: 0.5, 1: 0.5, 2: 0.9, 3: 0.9}
    ids = [store.setting(f"means {n}", its)[0] for n, its in enumerate((values, {0: 0.6, 1: 0.6, 9: 0.3}))]
    rows = grid(compare_settings(find_settings(Runs(store.tracker), ids), "accuracy"))
    assert [row[1] for row in rows] == ["4", "2 of 3"]
    assert [row[2][:6] for row in rows] == ["0.7000", "0.5000"]
    assert rows[1][3] == "+0.1000"
    lost = store.setting("means lost", values | {7: float("nan")})[0]
    rows = grid(compare_settings(find_settings(Runs(store.tracker), [lost, ids[1]]), "accuracy"))
    assert (rows[0][1], rows[0][2]) == ("5", "")


def test_what_pairs_can_reach_is_told_by_holms_correction():
    never = "never 0.05: more seeds are needed to decide anything."
    assert smallest_p_note([1]) == f"1 pair can reach p = 1, {never}"
    assert smallest_p_note([5, 5]) == f"5 pairs can reach p = 0.125 over 2 tests, {never}"
    assert smallest_p_note([7, 7]) == "7 pairs can reach p = 0.0312 over 2 tests."
    mixed = "3 to 12 pairs can reach p = 0.000977 to 0.25 over 2 tests; some tests can never reach 0.05."
    assert smallest_p_note([3, 12]) == mixed


def test_for_programs(found):
    tree = json.loads(json.dumps(as_dict(found)))
    first = tree["others"][0]
    assert first["paired"]["difference"] == found.rows[0].paired.difference
    assert first["runs"]["0"] == {"run_id": found.rows[0].setting.runs[0].run_id, "value": 0.55}
    assert (first["p_holm"], first["verdict"], first["differs"]) == (0.0625, "undecided", ["lr"])


def test_the_command(store, sweep, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracker.uri)
    words = [
        "compare",
        f"{sweep}:as written",
        f"{sweep}:trial 3",
        "--metric",
        "accuracy",
        "--home",
        str(tmp_path),
    ]
    table = CliRunner().invoke(app, words)
    assert table.exit_code == 0
    assert "better" in table.stdout
    tree = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert tree["others"][0]["paired"]["p"] == 0.03125
    assert CliRunner().invoke(app, [*words, "--latex"]).stdout.startswith(r"\begin{table}")
    assert CliRunner().invoke(app, [*words, "--markdown"]).stdout.startswith("**test/accuracy")
    both = CliRunner().invoke(app, [*words, "--latex", "--json"]).exception
    assert str(both) == "key --markdown, --latex, --json: one form at a time; found: several"
    assert isinstance(CliRunner().invoke(app, ["compare", "nothing", "--metric", "x"]).exception, UserError)


def test_a_section_that_one_job_lacks_stands_for_its_keys(store):
    heads = {"objective.heads.a.weight": 0.1, "objective.heads.a.loss": "supcon"}
    more = heads | {"objective.heads.ab.weight": 0.2, "objective.heads.ab.loss": "supcon"}
    jobs = ({"objective.loss": "ce"}, heads | {"objective.loss": "ce"}, more | {"objective.loss": "bce"})
    ids = [
        store.setting(f"sections {place}", {1: 0.5, 2: 0.6}, params=job)[0] for place, job in enumerate(jobs)
    ]
    found = find_settings(Runs(store.tracker), ids)
    assert [row.differs for row in compare_settings(found, "accuracy").rows] == [
        ("objective.heads",),
        ("objective.heads", "objective.loss"),
    ]
    (row,) = compare_settings(found[1:], "accuracy").rows
    assert row.differs == ("objective.heads.ab", "objective.loss")


def test_a_run_that_is_named_is_the_one_of_its_seed(store):
    old, shared = store.setting("renewed", {1: 0.5, 2: 0.6})
    (new,) = store.setting("renewed", {1: 0.9})
    runs = Runs(store.tracker)
    for named, first in ((old, 0.5), (new, 0.9)):
        (found,) = find_settings(runs, [named])
        assert [run.metrics["test/accuracy"] for run in found.runs.values()] == [first, 0.6]
    with pytest.raises(UserError, match=r"names runs that are named already; .*allowed: ID,ID,"):
        find_settings(runs, [old, new])
    exact = find_settings(runs, [f"{old},{shared}"])
    assert [sorted(each.runs) for each in exact] == [[1, 2]]


def test_a_fresh_seed_of_a_sweep_stands_for_its_setting(store):
    for name, value in (("early", 0.5), ("late", 0.9)):
        store.sweep(name, {"as written": {1: value, 2: value}})
    runs = Runs(store.tracker)
    (whole,) = find_settings(runs, ["early:as written"])
    (found,) = find_settings(runs, [whole.runs[1].run_id])
    assert (found.label, found.runs) == ("as written", whole.runs)


def test_a_run_of_a_cell_stands_for_the_cell_though_each_seed_splits_the_data(store):
    runs_of = [
        {"metrics": {"test/accuracy": 0.5}, "params": {"data.split_seed": seed}, "data": f"split{seed}"}
        for seed in range(3)
    ]
    ids = store.table("splits", {("It's", '"so"'): runs_of})
    for word in (ids["It's", '"so"', 0], 'It\'s, "so"'):
        (found,) = find_settings(Runs(store.tracker), [word])
        assert sorted(found.runs) == [0, 1, 2]
