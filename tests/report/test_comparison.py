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
        seed: {"test/accuracy": value, "val/accuracy": value + 0.1, "test/hamming_loss": 1 - value}
        for seed, value in values.items()
    }
    return made_up_setting(label, metrics, lower_is_better=frozenset({"hamming_loss"}))


BASE, BETTER, OTHER = three("as written", CE), three("trial 3", SUPCON), three("trial 9_b", MLCL)


@pytest.fixture(scope="module")
def found():
    return compare_settings([BASE, BETTER, OTHER], "accuracy")


def arm(label, *searches):
    """Returns an arm with the values of each search's seeds."""
    return Arm(
        label, tuple(tuple(Outcome(k, value) for k, value in enumerate(values)) for values in searches)
    )


def test_all_are_compared_with_the_first(found):
    first = arm("as written", CE.values())
    pairs = [difference_of(first, arm(label, scores.values()), "x", "max")
             for label, scores in (("trial 3", SUPCON), ("trial 9_b", MLCL))]  # fmt: skip
    assert (found.metric, found.reference) == ("test/accuracy", BASE)
    assert [row.setting for row in found.rows] == [BETTER, OTHER]
    assert [row.verdict.difference for row in found.rows] == [pair.value for pair in pairs]
    undecided = [p > 0.05 for p in holm([pair.p for pair in pairs])]
    assert [row.answer == "cannot tell" for row in found.rows] == undecided


def test_a_verdict_is_at_the_level_of_its_family(found):
    better_row, undecided_row = found.rows
    assert (better_row.answer, better_row.verdict.level, better_row.verdict.tests) == ("better", 0.975, 2)
    assert (undecided_row.answer, undecided_row.verdict.level) == ("cannot tell", 0.95)
    (single_row,) = compare_settings([BASE, BETTER], "accuracy").rows
    question = {"question": "settings", "metric": "test/accuracy", "mode": "max"}
    assert single_row.verdict == compare_arms(
        arm("as written", CE.values()), arm("trial 3", SUPCON.values()), **question
    )
    assert compare_settings([BETTER, BASE], "accuracy").rows[0].answer == "worse"
    loss_comparison = compare_settings([BASE, BETTER], "hamming_loss")
    assert (
        loss_comparison.mode,
        loss_comparison.rows[0].answer,
        loss_comparison.rows[0].verdict.difference > 0,
    ) == ("min", "better", True)


def test_a_margin_is_that_of_the_job_and_of_metrics_of_an_evaluation():
    jobs = [{"lr": label, "evaluation.margin": "0.2"} for label in "ab"]
    pair = [
        made_up_setting(job["lr"], {k: {"test/accuracy": 0.5 + k / 100 + step, "time/train_seconds": k + step}
                                    for k in range(6)}, job)
        for job, step in zip(jobs, (0, 0.1), strict=True)
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
    comparison = compare_settings(pair, metric)
    assert comparison.rows[0].answer == verdict
    assert ("better" in title(comparison)) == (verdict != "higher")
    assert ("1 is higher than 0" in notes(comparison)[0].lower()) == (verdict == "higher")


@pytest.mark.parametrize(
    ("other", "metric", "problem"),
    [
        (None, "accuracy", "needs two settings or more; found: as written"),
        (made_up_setting("o", {0: 0.5, 1: 0.6}, data="data2"), "accuracy",
         "trained on different data; found: as written data1, o data2"),
        (made_up_setting("o", {0: {"test/map": 0.5}}, data="data2"), "accuracy", "trained on different data"),
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
    settings = [made_up_setting(f"s{n}", {1: 0.5}, seeds={key: n, "data.split_seed": n}) for n in ("0", "7")]
    with pytest.raises(UserError, match=f"key {key}: .*with different seeds.*found: s0 0, s7 7"):
        compare_settings(settings, "accuracy")
    split_settings = [made_up_setting(f"s{n}", {1: 0.5}, seeds={"data.split_seed": n}) for n in ("0", "7")]
    assert compare_settings(split_settings, "accuracy").rows[0].verdict.difference == 0


def drawing(label, values):
    """Returns a setting whose seeds draw rows of their own."""
    settings = (made_up_setting(label, {k: v}, seeds={"data.subset.seed": str(k)}) for k, v in values.items())
    return ComparedSetting(
        label, label, {k: run for setting in settings for k, run in setting.runs.items()}, {"lr": label}
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
    setting = of_seeds("one", {0: 0.1, 1: 0.5, 2: 0.9, 3: 0.3})
    comparison = compare_settings(
        [setting, of_seeds("other", {1: 0.52, 2: 0.91, 3: 0.32, 7: 0.0})], "accuracy"
    )
    (row,) = comparison.rows
    assert row.verdict.difference == pytest.approx(0.05 / 3)
    assert (row.answer, row.unpaired, row.verdict.paired) == ("better", (0, 7), "seed")
    assert "outcomes of one seed were subtracted first" in row.verdict.sentence
    assert not row.verdict.rows_counted  # a block holds other rows in each split
    assert "other: seeds without a partner, not in the difference: 0, 7." in notes(comparison)
    assert grid(comparison)[1][1] == "3 of 4"


def test_seeds_without_a_partner_or_with_other_splits_are_not_compared():
    values, other_values = {0: 0.1, 1: 0.5, 2: 0.9, 3: 0.3}, {1: 0.52, 2: 0.91, 3: 0.32}
    split, other_split = splitting("one", values), splitting("other", other_values, data="another split{}")
    other = made_up_setting("other", other_values, data="split3", seeds={"data.split_seed": "3"})
    for pair, problem in (
        ([drawing("one", values), drawing("other", {8: 0.1, 9: 0.2})],
         r"share no seed, and cannot.*found: one: .*; other: seeds 8"),
        ([split, other_split], "trained on different data"), ([split, other], "trained on different data"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=problem):
            compare_settings(pair, "accuracy")


def test_a_fitted_baseline_has_no_neighbours_and_is_compared_by_its_value_without():
    model = made_up_setting("blend", {n: {"knn_best/test/accuracy": 0.6 + n / 100} for n in range(3)})
    baseline = made_up_setting("svm", dict.fromkeys(range(3), 0.5), {"baseline": "svm"})
    comparison = compare_settings([baseline, model], "knn_best/test/accuracy")
    assert comparison.rows[0].verdict.difference == pytest.approx(0.11)
    assert "svm: without neighbours, which a fitted baseline does not have." in notes(comparison)
    with pytest.raises(UserError, match="no such metric"):
        compare_settings([baseline, model], "test/accuracy")


def test_test_rows_count_for_a_metric_that_runs_have_not_recorded(tmp_path):
    """The blocks are computed from the predictions in the folder of each local run."""
    calls = []

    def blocks_of(folder, names):
        calls.append((folder.name, *names))
        return {name: (0.5, 0.6, 0.7 + 0.1 * int(folder.name)) for name in names}

    settings = [
        replace(setting, runs={k: replace(run, folder=tmp_path / str(k)) for k, run in setting.runs.items()})
        for setting in (BASE, BETTER)
    ]
    (row,) = compare_settings(settings, "accuracy", blocks_of).rows
    assert row.verdict.rows_counted
    assert calls == [(str(k), "test/accuracy") for _ in range(2) for k in CE]
    (remote_row,) = compare_settings([BASE, BETTER], "accuracy", blocks_of).rows
    assert not remote_row.verdict.rows_counted
    assert len(calls) == 12
    recorded_settings = [
        replace(
            setting,
            runs={k: replace(run, blocks={"test/accuracy": (0.5, 0.6)}) for k, run in setting.runs.items()},
        )
        for setting in settings
    ]
    assert compare_settings(recorded_settings, "accuracy", blocks_of).rows[0].verdict.rows_counted
    assert len(calls) == 12


def test_two_fitted_baselines_that_no_seed_changes_differ_by_the_test_rows_alone():
    svm, majority = (
        made_up_setting(name, dict.fromkeys(range(6), value), {"baseline": name})
        for name, value in (("svm", 0.4), ("majority", 0.1))
    )
    model = made_up_setting("ours", {seed: 0.6 + seed / 100 for seed in range(6)})
    unknown_row, better_row = compare_settings([svm, majority, model], "accuracy").rows
    assert (unknown_row.answer, unknown_row.verdict.interval) == ("cannot tell", None)
    assert (better_row.answer, better_row.verdict.tests, better_row.verdict.single) == (
        "better",
        1,
        ("ours",),
    )

    def blocks(setting, step):
        runs = {
            seed: replace(run, blocks={"test/accuracy": [0.1 + step * (-1) ** b for b in range(20)]})
            for seed, run in setting.runs.items()
        }
        return replace(setting, runs=runs)

    (row,) = compare_settings([blocks(svm, 0.0), blocks(majority, 0.002)], "accuracy").rows
    assert (row.answer, row.verdict.shares["rows"], row.verdict.single) == ("worse", 1, ())


def test_baselines_with_one_decided_answer_share_a_sentence():
    model = made_up_setting("ours", {seed: 0.6 + seed / 100 for seed in range(6)})
    baselines = [
        made_up_setting(name, {0: value}, {"baseline": name})
        for name, value in (("tfidf_svm", 0.3), ("majority", 0.1), ("tfidf_knn", 0.63))
    ]
    comparison = compare_settings([model, *baselines], "accuracy")
    assert [row.answer for row in comparison.rows] == ["worse", "worse", "cannot tell"]
    sentences = notes(comparison)
    assert sentences[0] == comparison.rows[2].verdict.sentence
    assert sentences[1] == "Fitted baselines that are worse than ours: tfidf_svm, majority."
    assert not any("differs in" in line for line in sentences)

    (baseline_row,) = compare_settings([model, baselines[0]], "accuracy").rows
    assert baseline_row.verdict.sentence.startswith("tfidf_svm is worse than ours: ")


def of_arm(arm, search, values, **fields):
    """Returns the pick of a search of a sweep that is compared as a whole."""
    job = {"lr": str(search), "epochs": "3"}
    job |= {"objective.heads.topic.loss": "supcon"} if arm == "heads" else {}
    role = {"control": Role.BASELINE | Role.CONTROL, "heads": Role.MODEL, "other": Role.BASELINE}[arm]
    seed_values = {100 * search + len(arm) + k: value for k, value in enumerate(values)}
    fields = {"optional": True, "sweep": "s", "arm": arm, "search": search, "role": role} | fields
    return made_up_setting(f"{arm}'s {search}", seed_values, job, **fields)


PICKS = [
    of_arm(arm, s, [value + s / 1000, value - s / 2000])
    for arm, value in (("other", 0.52), ("heads", 0.56), ("control", 0.5))
    for s in (1, 2, 3)
]


def test_the_searches_of_an_arm_are_compared_together():
    comparison = compare_settings(PICKS, "accuracy")
    labels = [comparison.reference.label, *(row.setting.label for row in comparison.rows)]
    assert labels == ["control", "other", "heads"]
    other, heads = (row.verdict for row in comparison.rows)
    assert (heads.question, heads.level, heads.tests) == ("heads", 0.95, 1)
    assert (other.question, other.treated.searches, other.single) == ("settings", 3, ())
    control, treated = (
        arm(name, *([value + s / 1000, value - s / 2000] for s in (1, 2, 3)))
        for name, value in (("control", 0.5), ("heads", 0.56))
    )
    expected = compare_arms(control, treated, question="heads", metric="test/accuracy", mode="max")
    assert heads.sentence == expected.sentence
    assert comparison.rows[1].setting.job == {"epochs": "3", "objective.heads.topic.loss": "supcon"}
    assert grid(comparison)[2][1] == "6 in 3 searches"
    assert "heads found heads's 1; heads's 2; heads's 3." in notes(comparison)
    assert as_dict(comparison)["others"][1]["picks"] == ("heads's 1", "heads's 2", "heads's 3")


def test_a_control_with_heads_of_its_own_is_compared_in_its_settings():
    def with_heads(setting):
        changed_setting = replace(setting, job={**setting.job, "objective.heads.topic.loss": "supcon"})
        return changed_setting if setting.arm == "control" else setting

    rows = compare_settings([with_heads(setting) for setting in PICKS], "accuracy").rows
    assert [row.verdict.question for row in rows] == ["settings", "settings"]
    assert {row.verdict.tests for row in rows} == {2}


def test_a_metric_without_a_better_side_asks_no_question_about_heads():
    def with_rate(setting):
        runs = {
            seed: replace(run, metrics={"train/lr": run.metrics["test/accuracy"]})
            for seed, run in setting.runs.items()
        }
        return replace(setting, runs=runs)

    rows = compare_settings([with_rate(setting) for setting in PICKS], "train/lr").rows
    assert {row.verdict.question for row in rows} == {"values"}


def test_of_several_settings_of_a_search_the_best_on_validation_counts():
    def scored(label, val):
        metrics = {seed: {"test/accuracy": seed / 9, "val/accuracy": val} for seed in range(3)}
        return made_up_setting(
            label, metrics, optional=True, sweep="s", arm="heads", score="val/accuracy", role=Role.MODEL
        )

    worse, best = scored("trial 1", 0.5), scored("trial 2", 0.6)
    control = of_arm("control", 1, [0.1, 0.2])
    comparison = compare_settings([worse, best, control], "test/accuracy")
    assert [row.setting.label for row in comparison.rows] == ["trial 1", "heads"]
    assert comparison.rows[1].setting.picks == ("trial 2",)
    named_comparison = compare_settings(
        [replace(setting, optional=False) for setting in (best, worse)], "test/accuracy"
    )
    assert [named_comparison.reference.label, named_comparison.rows[0].setting.label] == [
        "trial 2",
        "trial 1",
    ]


def test_what_a_sweep_confirmed_on_other_validation_rows_is_left_out_of_the_whole_sweep():
    """Such settings remain after a command with fewer searches, since each search draws rows of its own."""
    control, heads = (of_arm(name, 1, [0.5, 0.6]) for name in ("control", "heads"))
    earlier_setting = replace(of_arm("heads", 2, [0.7, 0.8], seeds={"data.validation_seed": "2"}), arm="")
    comparison = compare_settings([control, heads, earlier_setting], "accuracy")
    assert [row.setting.label for row in comparison.rows] == ["heads"]
    assert as_dict(comparison)["other_draws"] == ("heads's 2",)
    assert "Left out, for they are of other draws from the data: heads's 2." in notes(comparison)
    for settings in ([control, earlier_setting], [control, heads, replace(earlier_setting, optional=False)]):
        with pytest.raises(UserError, match=r"data\.validation_seed: .*with different seeds"):
            compare_settings(settings, "accuracy")


def test_fitted_baselines_of_a_whole_sweep_are_left_out_of_a_metric_that_they_do_not_have():
    unseen_metric = "unseen/1nn/test/accuracy"
    metrics = {seed: {"test/accuracy": seed, unseen_metric: seed / 9} for seed in range(3)}
    written_setting, trial = (
        made_up_setting(name, metrics, optional=True) for name in ("as written", "trial 4")
    )
    baseline = made_up_setting(
        "majority", dict.fromkeys(range(3), 0.5), {"baseline": "majority"}, optional=True
    )
    comparison = compare_settings([written_setting, trial, baseline], unseen_metric)
    assert [row.setting.label for row in comparison.rows] == ["trial 4"]
    assert as_dict(comparison)["left_out"] == ("majority",)
    assert f"Left out, for a fitted baseline has no {unseen_metric}: majority." in notes(comparison)
    assert compare_settings([written_setting, trial, baseline], "accuracy").left_out == ()
    named_baseline = made_up_setting("majority", {0: 0.5}, {"baseline": "majority"})
    for settings, metric, problem in (
        ([written_setting, trial, baseline], "acuracy", "as written has no such metric"),
        ([written_setting, baseline], unseen_metric, f"two settings or more that have {unseen_metric}"),
        ([written_setting, named_baseline], unseen_metric, "majority has no such metric"),
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
    text, tex, sentences = as_markdown(found), as_latex(found), notes(found)
    mean, spread = np.mean(list(CE.values())), np.std(list(CE.values()), ddof=1)
    assert f"| as written | 6 | {mean:.4f} ± {spread:.4f} |" in text
    assert r"trial 9\_b & 7" in tex
    assert tex.count(r" \\") == 4
    assert r"test/accuracy against as written (higher is better)" in tex
    assert sentences[0] == found.rows[0].verdict.sentence
    assert sentences[0].startswith(
        "trial 3 is better than as written: test/accuracy 0.5567 against 0.5083, +0.0483 (97.5 %"
    )
    assert "it speaks of the settings of one search (as written, trial 3)." in sentences[0]
    assert "trial 3 differs in lr." in sentences
    first = json.loads(json.dumps(as_dict(found)))["others"][0]
    assert first["verdict"]["difference"] == found.rows[0].verdict.difference
    assert first["runs"]["0"] == {"run_id": "trial 3-0", "value": 0.55}
    assert (first["verdict"]["answer"], first["differs"]) == ("helps", ["lr"])
    assert first["verdict"]["sentence"] == sentences[0]


def test_a_value_that_is_no_number_is_not_left_out():
    values = {0: 0.5, 1: 0.5, 2: 0.9, 7: NAN}
    with pytest.raises(UserError, match="not a number in some runs; found: lost, seed 7: nan"):
        compare_settings([made_up_setting("lost", values), BASE], "accuracy")
    lost_setting = drawing("lost", values)
    comparison = compare_settings([lost_setting, drawing("own", {0: 0.5, 1: 0.6, 2: 0.8})], "accuracy")
    assert grid(comparison)[0][1:3] == ["4", ""]
    tree = json.loads(json.dumps(as_dict(comparison), allow_nan=False))
    assert tree["reference"]["runs"]["7"]["value"] is None


def test_settings_are_compared_with_the_neighbours_that_the_race_chose(store, searched):
    sweep = searched[1]
    assert all("evaluation.knn.lambda" in setting.settings for setting in sweep.settings)
    comparison = compare_settings(find_settings(Runs(store.tracker), [sweep.id]))
    assert comparison.metric == "knn/test/accuracy"
    assert not [key for row in comparison.rows for key in row.differs if key.startswith("evaluation.")]


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
    error = CliRunner().invoke(app, [*words, "--latex", "--json"]).exception
    assert str(error) == "key --markdown, --latex, --json: one form at a time; found: several"
    assert isinstance(CliRunner().invoke(app, ["compare", "nothing", "--metric", "x"]).exception, UserError)
