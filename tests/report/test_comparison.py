"""Tests of comparisons against numbers that are computed by hand, and of what cannot be compared."""

import json
from dataclasses import replace

import numpy as np
import pytest
from report.made_up_runs import made_up_setting
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.errors import UserError
from mlcl.results.compared_setting import ComparedSetting, SeedRun
from mlcl.results.comparison import compare_settings
from mlcl.results.comparison_text import as_dict, as_latex, as_markdown, grid, notes, title
from mlcl.results.runs import Runs
from mlcl.results.settings import find_settings
from mlcl.significance.arms import Arm, Outcome, difference_of
from mlcl.significance.paired_tests import holm
from mlcl.significance.roles import Role
from mlcl.significance.verdict import compare_arms

CE = {0: 0.50, 1: 0.52, 2: 0.49, 3: 0.51, 4: 0.53, 5: 0.50}
SUPCON = {0: 0.55, 1: 0.56, 2: 0.55, 3: 0.53, 4: 0.58, 5: 0.57}
MLCL = {0: 0.53, 1: 0.51, 2: 0.52, 3: 0.50, 4: 0.54, 5: 0.51, 6: 0.9}
NAN = float("nan")


def three(label, values):
    metrics = {
        seed: {"test/accuracy": each, "val/accuracy": each + 0.1, "test/hamming_loss": 1 - each}
        for seed, each in values.items()
    }
    return made_up_setting(label, metrics, lower_is_better=frozenset({"hamming_loss"}))


BASE, BETTER, OTHER = three("as written", CE), three("trial 3", SUPCON), three("trial 9_b", MLCL)


@pytest.fixture(scope="module")
def found():
    return compare_settings([BASE, BETTER, OTHER], "accuracy")


def arm(label, *searches):
    """Returns an arm with the values of each search's seeds."""
    return Arm(label, tuple(tuple(Outcome(k, value) for k, value in enumerate(its)) for its in searches))


def test_all_are_compared_with_the_first(found):
    first = arm("as written", CE.values())
    pairs = [difference_of(first, arm(label, its.values()), "x", "max")
             for label, its in (("trial 3", SUPCON), ("trial 9_b", MLCL))]  # fmt: skip
    assert (found.metric, found.reference) == ("test/accuracy", BASE)
    assert [row.setting for row in found.rows] == [BETTER, OTHER]
    assert [row.verdict.difference for row in found.rows] == [each.value for each in pairs]
    undecided = [p > 0.05 for p in holm([its.p for its in pairs])]
    assert [row.answer == "cannot tell" for row in found.rows] == undecided


def test_a_verdict_is_at_the_level_of_its_family(found):
    better, undecided = found.rows
    assert (better.answer, better.verdict.level, better.verdict.tests) == ("better", 0.975, 2)
    assert (undecided.answer, undecided.verdict.level) == ("cannot tell", 0.95)
    (alone,) = compare_settings([BASE, BETTER], "accuracy").rows
    question = {"question": "settings", "metric": "test/accuracy", "mode": "max"}
    assert alone.verdict == compare_arms(
        arm("as written", CE.values()), arm("trial 3", SUPCON.values()), **question
    )
    assert compare_settings([BETTER, BASE], "accuracy").rows[0].answer == "worse"
    less = compare_settings([BASE, BETTER], "hamming_loss")
    assert (less.mode, less.rows[0].answer, less.rows[0].verdict.difference > 0) == ("min", "better", True)


def test_a_margin_is_that_of_the_job_and_of_metrics_of_an_evaluation():
    jobs = [{"lr": label, "evaluation.margin": "0.2"} for label in "ab"]
    pair = [
        made_up_setting(job["lr"], {k: {"test/accuracy": 0.5 + k / 100 + more, "time/train_seconds": k + more}
                                    for k in range(6)}, job)
        for job, more in zip(jobs, (0, 0.1), strict=True)
    ]  # fmt: skip
    assert compare_settings(pair, "accuracy").rows[0].answer == "makes no difference"
    assert compare_settings(pair, "time/train_seconds").rows[0].verdict.margin == 0


@pytest.mark.parametrize(
    ("spelled", "name"),
    [("Hamming-Loss", "test/hamming_loss"), ("hamming", "test/hamming_loss"),
     ("test/Hamming loss", "test/hamming_loss"), ("test/ACC", "test/accuracy"),
     ("val/accuracy", "val/accuracy")],
)  # fmt: skip
def test_a_metric_is_matched_loosely_and_a_full_name_is_taken_as_it_is(spelled, name):
    assert compare_settings([BASE, BETTER], spelled).metric == name


OWN = frozenset({"misses", "hops_*"})


@pytest.mark.parametrize(
    ("lower", "metric", "verdict"),
    [
        (OWN, "test/misses", "worse"), (OWN, "test/misses_at_half", "worse"), (OWN, "test/hops_x", "worse"),
        (OWN, "test/hits", "better"), (None, "test/misses", "better"), (None, "knn/val/map", "better"),
        (None, "time/train_seconds", "worse"), (None, "train/loss", "worse"), (None, "train/lr", "higher"),
    ],
)  # fmt: skip
def test_runs_say_which_side_of_a_metric_is_better_where_one_is(lower, metric, verdict):
    pair = [
        made_up_setting(str(n), {seed: {metric: seed / 9 + n} for seed in range(6)}, lower_is_better=lower)
        for n in (0, 1)
    ]
    compared = compare_settings(pair, metric)
    assert compared.rows[0].answer == verdict
    assert ("better" in title(compared)) == (verdict != "higher")
    assert ("1 is higher than 0" in notes(compared)[0].lower()) == (verdict == "higher")


@pytest.mark.parametrize(
    ("other", "metric", "problem"),
    [
        (None, "accuracy", "needs two settings or more; found: as written"),
        (made_up_setting("o", {0: 0.5, 1: 0.6}, data="data2"), "accuracy",
         "trained on different data; found: as written data1, o data2"),
        (BETTER, "test/acuracy", "as written has no such metric; did you mean test/accuracy?"),
        (made_up_setting("o", {0: NAN, 1: 0.5}), "accuracy",
         "test/accuracy is not a number in some runs; found: o, seed 0: nan"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared(other, metric, problem):
    with pytest.raises(UserError) as error:
        compare_settings([BASE, *([other] if other else [])], metric)
    assert problem in error.value.line()


@pytest.mark.parametrize("key", ["data.subset.seed", "data.label_noise.seed"])
def test_other_draws_from_the_data_do_not_compare(key):
    drawn = [made_up_setting(f"s{n}", {1: 0.5}, seeds={key: n, "data.split_seed": n}) for n in ("0", "7")]
    with pytest.raises(UserError, match=f"key {key}: .*with different seeds.*found: s0 0, s7 7"):
        compare_settings(drawn, "accuracy")
    only_split = [made_up_setting(f"s{n}", {1: 0.5}, seeds={"data.split_seed": n}) for n in ("0", "7")]
    assert compare_settings(only_split, "accuracy").rows[0].verdict.difference == 0


def drawing(label, values):
    """Returns a setting whose seeds draw rows of their own."""
    drawn = (made_up_setting(label, {k: v}, seeds={"data.subset.seed": str(k)}) for k, v in values.items())
    return ComparedSetting(
        label, label, {k: run for its in drawn for k, run in its.runs.items()}, {"lr": label}
    )


def splitting(label, values, data="split{}"):
    """Returns a setting whose seeds have splits, and so test rows, of their own, with known blocks."""
    blocks = {"test/accuracy": (0.1, 0.2, 0.3)}
    runs = {
        seed: SeedRun(f"{label}{seed}", seed, data.format(seed), {"test/accuracy": value},
                      {"data.split_seed": str(seed)}, blocks)
        for seed, value in values.items()
    }  # fmt: skip
    return ComparedSetting(label, label, runs, {"lr": label})


@pytest.mark.parametrize("of_seeds", [drawing, splitting])
def test_where_seeds_draw_rows_or_splits_their_outcomes_are_subtracted_first(of_seeds):
    one = of_seeds("one", {0: 0.1, 1: 0.5, 2: 0.9, 3: 0.3})
    compared = compare_settings([one, of_seeds("other", {1: 0.52, 2: 0.91, 3: 0.32, 7: 0.0})], "accuracy")
    (row,) = compared.rows
    assert row.verdict.difference == pytest.approx(0.05 / 3)
    assert (row.answer, row.unpaired, row.verdict.paired) == ("better", (0, 7), "seed")
    assert "outcomes of one seed were subtracted first" in row.verdict.sentence
    assert not row.verdict.rows_counted  # a block holds other rows in each split
    assert "other: seeds without a partner, not in the difference: 0, 7." in notes(compared)
    assert grid(compared)[1][1] == "3 of 4"


def test_seeds_without_a_partner_or_with_other_splits_are_not_compared():
    one, few = {0: 0.1, 1: 0.5, 2: 0.9, 3: 0.3}, {1: 0.52, 2: 0.91, 3: 0.32}
    split, elsewhere = splitting("one", one), splitting("other", few, data="another split{}")
    other = made_up_setting("other", few, data="split3", seeds={"data.split_seed": "3"})
    for pair, problem in (
        ([drawing("one", one), drawing("other", {8: 0.1, 9: 0.2})],
         r"share no seed, and cannot.*found: one: .*; other: seeds 8"),
        ([split, elsewhere], "trained on different data"), ([split, other], "trained on different data"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=problem):
            compare_settings(pair, "accuracy")


def test_a_fitted_baseline_has_no_neighbours_and_is_compared_by_its_value_without():
    trained = made_up_setting("blend", {n: {"knn_best/test/accuracy": 0.6 + n / 100} for n in range(3)})
    fitted = made_up_setting("svm", dict.fromkeys(range(3), 0.5), {"baseline": "svm"})
    compared = compare_settings([fitted, trained], "knn_best/test/accuracy")
    assert compared.rows[0].verdict.difference == pytest.approx(0.11)
    assert "svm: without neighbours, which a fitted baseline does not have." in notes(compared)
    with pytest.raises(UserError, match="no such metric"):
        compare_settings([fitted, trained], "test/accuracy")


def test_test_rows_count_for_a_metric_that_runs_have_not_recorded(tmp_path):
    """The blocks are computed from the predictions in the folder of each local run."""
    asked = []

    def blocks_of(folder, names):
        asked.append((folder.name, *names))
        return {name: (0.5, 0.6, 0.7 + 0.1 * int(folder.name)) for name in names}

    settings = [
        replace(each, runs={k: replace(run, folder=tmp_path / str(k)) for k, run in each.runs.items()})
        for each in (BASE, BETTER)
    ]
    (row,) = compare_settings(settings, "accuracy", blocks_of).rows
    assert row.verdict.rows_counted
    assert asked == [(str(k), "test/accuracy") for _ in range(2) for k in CE]
    (remote,) = compare_settings([BASE, BETTER], "accuracy", blocks_of).rows
    assert not remote.verdict.rows_counted
    assert len(asked) == 12
    recorded = [
        replace(
            each, runs={k: replace(run, blocks={"test/accuracy": (0.5, 0.6)}) for k, run in each.runs.items()}
        )
        for each in settings
    ]
    assert compare_settings(recorded, "accuracy", blocks_of).rows[0].verdict.rows_counted
    assert len(asked) == 12


def test_two_fitted_baselines_that_no_seed_changes_differ_by_the_test_rows_alone():
    svm, majority = (
        made_up_setting(name, dict.fromkeys(range(6), value), {"baseline": name})
        for name, value in (("svm", 0.4), ("majority", 0.1))
    )
    ours = made_up_setting("ours", {seed: 0.6 + seed / 100 for seed in range(6)})
    unknown, better = compare_settings([svm, majority, ours], "accuracy").rows
    assert (unknown.answer, unknown.verdict.interval) == ("cannot tell", None)
    assert (better.answer, better.verdict.tests, better.verdict.single) == ("better", 1, ("ours",))

    def blocks(setting, step):
        runs = {
            seed: replace(run, blocks={"test/accuracy": [0.1 + step * (-1) ** b for b in range(20)]})
            for seed, run in setting.runs.items()
        }
        return replace(setting, runs=runs)

    (row,) = compare_settings([blocks(svm, 0.0), blocks(majority, 0.002)], "accuracy").rows
    assert (row.answer, row.verdict.shares["rows"], row.verdict.single) == ("worse", 1, ())


def test_baselines_with_one_decided_answer_share_a_sentence():
    ours = made_up_setting("ours", {seed: 0.6 + seed / 100 for seed in range(6)})
    fitted = [
        made_up_setting(name, {0: value}, {"baseline": name})
        for name, value in (("tfidf_svm", 0.3), ("majority", 0.1), ("tfidf_knn", 0.63))
    ]
    found = compare_settings([ours, *fitted], "accuracy")
    assert [row.answer for row in found.rows] == ["worse", "worse", "cannot tell"]
    said = notes(found)
    assert said[0] == found.rows[2].verdict.sentence
    assert said[1] == "Fitted baselines that are worse than ours: tfidf_svm, majority."
    assert not any("differs in" in line for line in said)

    (alone,) = compare_settings([ours, fitted[0]], "accuracy").rows
    assert alone.verdict.sentence.startswith("tfidf_svm is worse than ours: ")


def of_arm(arm, search, values, **fields):
    """Returns the pick of a search of a sweep that is compared as a whole."""
    job = {"lr": str(search), "epochs": "3"}
    job |= {"objective.heads.topic.loss": "supcon"} if arm == "heads" else {}
    role = {"control": Role.BASELINE | Role.CONTROL, "heads": Role.MODEL, "other": Role.BASELINE}[arm]
    its = {100 * search + len(arm) + k: value for k, value in enumerate(values)}
    fields = {"optional": True, "sweep": "s", "arm": arm, "search": search, "role": role} | fields
    return made_up_setting(f"{arm}'s {search}", its, job, **fields)


PICKS = [
    of_arm(arm, s, [value + s / 1000, value - s / 2000])
    for arm, value in (("other", 0.52), ("heads", 0.56), ("control", 0.5))
    for s in (1, 2, 3)
]


def test_the_searches_of_an_arm_are_compared_together():
    compared = compare_settings(PICKS, "accuracy")
    labels = [compared.reference.label, *(row.setting.label for row in compared.rows)]
    assert labels == ["control", "other", "heads"]
    other, heads = (row.verdict for row in compared.rows)
    assert (heads.question, heads.level, heads.tests) == ("heads", 0.95, 1)
    assert (other.question, other.treated.searches, other.single) == ("settings", 3, ())
    control, treated = (
        arm(name, *([value + s / 1000, value - s / 2000] for s in (1, 2, 3)))
        for name, value in (("control", 0.5), ("heads", 0.56))
    )
    expected = compare_arms(control, treated, question="heads", metric="test/accuracy", mode="max")
    assert heads.sentence == expected.sentence
    assert compared.rows[1].setting.job == {"epochs": "3", "objective.heads.topic.loss": "supcon"}
    assert grid(compared)[2][1] == "6 in 3 searches"
    assert "heads found heads's 1; heads's 2; heads's 3." in notes(compared)
    assert as_dict(compared)["others"][1]["picks"] == ("heads's 1", "heads's 2", "heads's 3")


def test_a_control_with_heads_of_its_own_is_compared_in_its_settings():
    def its(setting):
        own = replace(setting, job={**setting.job, "objective.heads.topic.loss": "supcon"})
        return own if setting.arm == "control" else setting

    rows = compare_settings([its(each) for each in PICKS], "accuracy").rows
    assert [row.verdict.question for row in rows] == ["settings", "settings"]
    assert {row.verdict.tests for row in rows} == {2}


def test_a_metric_without_a_better_side_asks_no_question_about_heads():
    def its(setting):
        runs = {
            seed: replace(run, metrics={"train/lr": run.metrics["test/accuracy"]})
            for seed, run in setting.runs.items()
        }
        return replace(setting, runs=runs)

    rows = compare_settings([its(each) for each in PICKS], "train/lr").rows
    assert {row.verdict.question for row in rows} == {"values"}


def test_of_several_settings_of_a_search_the_best_on_validation_counts():
    def scored(label, val):
        metrics = {seed: {"test/accuracy": seed / 9, "val/accuracy": val} for seed in range(3)}
        return made_up_setting(
            label, metrics, optional=True, sweep="s", arm="heads", score="val/accuracy", role=Role.MODEL
        )

    worse, best = scored("trial 1", 0.5), scored("trial 2", 0.6)
    control = of_arm("control", 1, [0.1, 0.2])
    compared = compare_settings([worse, best, control], "test/accuracy")
    assert [row.setting.label for row in compared.rows] == ["trial 1", "heads"]
    assert compared.rows[1].setting.picks == ("trial 2",)
    named = compare_settings([replace(each, optional=False) for each in (best, worse)], "test/accuracy")
    assert [named.reference.label, named.rows[0].setting.label] == ["trial 2", "trial 1"]


def test_what_a_sweep_confirmed_on_other_validation_rows_is_left_out_of_the_whole_sweep():
    """Such settings remain after a command with fewer searches, since each search draws rows of its own."""
    control, heads = (of_arm(name, 1, [0.5, 0.6]) for name in ("control", "heads"))
    earlier = replace(of_arm("heads", 2, [0.7, 0.8], seeds={"data.validation_seed": "2"}), arm="")
    compared = compare_settings([control, heads, earlier], "accuracy")
    assert [row.setting.label for row in compared.rows] == ["heads"]
    assert as_dict(compared)["other_draws"] == ("heads's 2",)
    assert "Left out, for they are of other draws from the data: heads's 2." in notes(compared)
    for settings in ([control, earlier], [control, heads, replace(earlier, optional=False)]):
        with pytest.raises(UserError, match=r"data\.validation_seed: .*with different seeds"):
            compare_settings(settings, "accuracy")


def test_fitted_baselines_of_a_whole_sweep_are_left_out_of_a_metric_that_they_do_not_have():
    unseen = "unseen/1nn/test/accuracy"
    both = {seed: {"test/accuracy": seed, unseen: seed / 9} for seed in range(3)}
    written, trial = (made_up_setting(name, both, optional=True) for name in ("as written", "trial 4"))
    fitted = made_up_setting(
        "majority", dict.fromkeys(range(3), 0.5), {"baseline": "majority"}, optional=True
    )
    compared = compare_settings([written, trial, fitted], unseen)
    assert [row.setting.label for row in compared.rows] == ["trial 4"]
    assert as_dict(compared)["left_out"] == ("majority",)
    assert f"Left out, for a fitted baseline has no {unseen}: majority." in notes(compared)
    assert compare_settings([written, trial, fitted], "accuracy").left_out == ()
    named = made_up_setting("majority", {0: 0.5}, {"baseline": "majority"})
    for settings, metric, problem in (
        ([written, trial, fitted], "acuracy", "as written has no such metric"),
        ([written, fitted], unseen, f"two settings or more that have {unseen}"),
        ([written, named], unseen, "majority has no such metric"),
    ):
        with pytest.raises(UserError, match=problem):
            compare_settings(settings, metric)


HEADS = {"objective.heads.a.weight": "0.1", "objective.heads.a.loss": "supcon", "objective.loss": "ce"}
MORE = {**HEADS, "objective.heads.ab.weight": "0.2", "objective.heads.ab.loss": "x", "objective.loss": "bce"}


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ({"objective.loss": "ce"}, HEADS, ("objective.heads",)),
        ({"objective.loss": "ce"}, MORE, ("objective.heads", "objective.loss")),
        (HEADS, MORE, ("objective.heads.ab", "objective.loss")),
    ],
)
def test_a_section_that_one_job_lacks_stands_for_its_keys(one, other, differs):
    pair = [made_up_setting("one", {1: 0.5}, one), made_up_setting("other", {1: 0.6}, other)]
    assert compare_settings(pair, "accuracy").rows[0].differs == differs


def test_on_paper_and_for_programs(found):
    text, tex, said = as_markdown(found), as_latex(found), notes(found)
    mean, spread = np.mean(list(CE.values())), np.std(list(CE.values()), ddof=1)
    assert f"| as written | 6 | {mean:.4f} ± {spread:.4f} |" in text
    assert r"trial 9\_b & 7" in tex
    assert tex.count(r" \\") == 4
    assert r"test/accuracy against as written (higher is better)" in tex
    assert said[0] == found.rows[0].verdict.sentence
    assert said[0].startswith(
        "trial 3 is better than as written: test/accuracy 0.5567 against 0.5083, +0.0483 (97.5 %"
    )
    assert "it speaks of the settings of one search (as written, trial 3)." in said[0]
    assert "trial 3 differs in lr." in said
    first = json.loads(json.dumps(as_dict(found)))["others"][0]
    assert first["verdict"]["difference"] == found.rows[0].verdict.difference
    assert first["runs"]["0"] == {"run_id": "trial 3-0", "value": 0.55}
    assert (first["verdict"]["answer"], first["differs"]) == ("helps", ["lr"])
    assert first["verdict"]["sentence"] == said[0]


def test_a_value_that_is_no_number_is_not_left_out():
    values = {0: 0.5, 1: 0.5, 2: 0.9, 7: NAN}
    with pytest.raises(UserError, match="not a number in some runs; found: lost, seed 7: nan"):
        compare_settings([made_up_setting("lost", values), BASE], "accuracy")
    lost = drawing("lost", values)
    compared = compare_settings([lost, drawing("own", {0: 0.5, 1: 0.6, 2: 0.8})], "accuracy")
    assert grid(compared)[0][1:3] == ["4", ""]
    tree = json.loads(json.dumps(as_dict(compared), allow_nan=False))
    assert tree["reference"]["runs"]["7"]["value"] is None


def test_settings_are_compared_with_the_neighbours_that_the_race_chose(store, searched):
    sweep = searched[1]
    assert all("evaluation.knn.lambda" in its.settings for its in sweep.settings)
    compared = compare_settings(find_settings(Runs(store.tracker), [sweep.id]))
    assert compared.metric == "knn/test/accuracy"
    assert not [key for row in compared.rows for key in row.differs if key.startswith("evaluation.")]


def test_the_command(store, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracker.uri)
    store.sweep("commanded", {"as written": CE, "trial 3": SUPCON})
    words = ["compare", "commanded", "--metric", "accuracy", "--home", str(tmp_path)]
    table = CliRunner().invoke(app, words)
    assert (table.exit_code, "better" in table.stdout) == (0, True)
    tree = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert tree["others"][0]["verdict"]["answer"] == "helps"
    assert CliRunner().invoke(app, [*words, "--latex"]).stdout.startswith(r"\begin{table}")
    assert CliRunner().invoke(app, [*words, "--markdown"]).stdout.startswith("**test/accuracy")
    both = CliRunner().invoke(app, [*words, "--latex", "--json"]).exception
    assert str(both) == "key --markdown, --latex, --json: one form at a time; found: several"
    assert isinstance(CliRunner().invoke(app, ["compare", "nothing", "--metric", "x"]).exception, UserError)
