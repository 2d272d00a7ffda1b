"""Comparisons against numbers by hand, and everything that cannot be compared."""

import json

import numpy as np
import pytest
from report.made_up_runs import made_up_setting
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.errors import UserError
from mlcl.results.comparison import compare_settings
from mlcl.results.comparison_text import as_dict, as_latex, as_markdown, grid, notes, smallest_p_note, title
from mlcl.results.runs import Runs
from mlcl.results.settings import find_settings
from mlcl.significance.paired_tests import compare_paired, holm

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


def test_all_are_compared_with_the_first_over_the_seeds_that_both_have(found):
    tests = [compare_paired(list(CE.values()), [its[n] for n in range(6)]) for its in (SUPCON, MLCL)]
    assert (found.metric, found.reference) == ("test/accuracy", BASE)
    assert [row.setting for row in found.rows] == [BETTER, OTHER]
    assert [row.paired for row in found.rows] == tests
    assert [row.p for row in found.rows] == holm([test.p for test in tests])
    assert [row.seeds for row in found.rows] == [tuple(range(6))] * 2
    assert [row.unpaired for row in found.rows] == [(), (6,)]


def test_what_is_decided_and_what_is_not(found):
    better, undecided = found.rows
    assert (better.p, better.verdict, undecided.verdict) == (0.0625, "undecided", "undecided")
    assert better.further > 0
    (alone,) = compare_settings([BASE, BETTER], "accuracy").rows
    assert (alone.p, alone.verdict, alone.further) == (0.03125, "better", 0)
    assert compare_settings([BETTER, BASE], "accuracy").rows[0].verdict == "worse"
    less = compare_settings([BASE, BETTER], "hamming_loss")
    assert (less.mode, less.rows[0].verdict, less.rows[0].paired.difference < 0) == ("min", "better", True)


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
        made_up_setting(str(n), {seed: {metric: seed + n} for seed in range(6)}, lower_is_better=lower)
        for n in (0, 1)
    ]
    compared = compare_settings(pair, metric)
    assert compared.rows[0].verdict == verdict
    assert ("better" in title(compared)) == (verdict != "higher")


@pytest.mark.parametrize(
    ("other", "metric", "problem"),
    [
        (None, "accuracy", "needs two settings or more; found: as written"),
        (made_up_setting("o", {0: 0.5, 1: 0.6}, data="data2"), "accuracy",
         "trained on different data; found: seed 0: as written data1, o data2"),
        (made_up_setting("o", {8: 0.5, 9: 0.5}), "accuracy", "share no seed, and cannot be paired; found: "
         "as written: seeds 0 1 2 3 4 5; o: seeds 8 9"),
        (BETTER, "test/acuracy", "as written has no such metric; did you mean test/accuracy?"),
        (made_up_setting("o", {0: NAN, 1: 0.5}), "accuracy",
         "test/accuracy is no number in some runs; found: o, seed 0: nan"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared(other, metric, problem):
    with pytest.raises(UserError) as error:
        compare_settings([BASE, *([other] if other else [])], metric)
    assert problem in error.value.line()


@pytest.mark.parametrize("key", ["data.subset.seed", "data.label_noise.seed"])
def test_other_draws_from_the_data_do_not_pair(key):
    drawn = [made_up_setting(f"s{n}", {1: 0.5}, seeds={key: n, "data.split_seed": n}) for n in ("0", "7")]
    with pytest.raises(UserError, match=f"key {key}: .*with different seeds.*found: seed 1: s0 0, s7 7"):
        compare_settings(drawn, "accuracy")
    only_split = [made_up_setting(f"s{n}", {1: 0.5}, seeds={"data.split_seed": n}) for n in ("0", "7")]
    assert compare_settings(only_split, "accuracy").rows[0].seeds == (1,)


def test_a_fitted_baseline_has_no_neighbours_and_is_compared_by_its_value_without():
    trained = made_up_setting("blend", {n: {"knn_best/test/accuracy": 0.6 + n / 100} for n in range(3)})
    fitted = made_up_setting("svm", dict.fromkeys(range(3), 0.5), {"baseline": "svm"})
    compared = compare_settings([fitted, trained], "knn_best/test/accuracy")
    assert compared.rows[0].paired.difference == pytest.approx(0.11)
    assert "svm: without neighbours, which a fitted baseline does not have." in notes(compared)
    with pytest.raises(UserError, match="no such metric"):
        compare_settings([fitted, trained], "test/accuracy")


def test_two_fitted_baselines_that_no_seed_changes_are_not_tested():
    others = {seed: 0.5 + seed / 100 for seed in range(6)}
    svm, majority = (
        made_up_setting(name, dict.fromkeys(range(6), value), {"baseline": name})
        for name, value in (("svm", 0.4), ("majority", 0.1))
    )
    noisy = made_up_setting("noisy", others, {"baseline": "noisy"})
    ours = made_up_setting("ours", {seed: value + 0.1 for seed, value in others.items()})
    compared = compare_settings([svm, majority, noisy, ours], "accuracy")
    fixed, *tested = compared.rows
    assert (fixed.verdict, fixed.p, fixed.further) == ("not tested", None, None)
    assert [row.p for row in tested] == holm([row.paired.p for row in tested])
    said = notes(compared)
    assert said[:2] == [smallest_p_note([6, 6]), "Not tested, for no seed changes them or svm: majority."]
    assert not any(line.startswith("majority: ") for line in said)
    assert grid(compared)[1][-3:] == ["", "", "not tested"]
    assert as_dict(compared)["others"][0]["p_holm"] is None
    assert notes(compare_settings([svm, majority], "accuracy"))[0].startswith("Not tested")
    assert compare_settings([ours, svm], "accuracy").rows[0].verdict == "worse"


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


def test_on_paper(found):
    text, tex, said = as_markdown(found), as_latex(found), notes(found)
    mean, spread = np.mean(list(CE.values())), np.std(list(CE.values()), ddof=1)
    assert f"| as written | 6 | {mean:.4f} ± {spread:.4f} |" in text
    assert r"trial 9\_b & 6" in tex
    assert tex.count(r" \\") == 4
    assert r"test/accuracy against as written (higher is better)" in tex
    never = "never 0.05: more seeds are needed to decide anything."
    assert said[0] == f"6 pairs can reach p = 0.0625 over 2 tests, {never}"
    assert "trial 9_b: seeds without a partner, not in the difference: 6." in said
    assert "trial 3 differs in lr." in said


def test_a_mean_is_over_all_seeds_of_its_setting_and_the_difference_over_pairs():
    values = {0: 0.5, 1: 0.5, 2: 0.9, 3: 0.9}
    other = made_up_setting("other", {0: 0.6, 1: 0.6, 9: 0.3})
    rows = grid(compare_settings([made_up_setting("own", values), other], "accuracy"))
    assert [row[1] for row in rows] == ["4", "2 of 3"]
    assert [row[2][:6] for row in rows] == ["0.7000", "0.5000"]
    assert rows[1][3] == "+0.1000"
    compared = compare_settings([made_up_setting("lost", values | {7: NAN}), other], "accuracy")
    assert grid(compared)[0][1:3] == ["5", ""]
    tree = json.loads(json.dumps(as_dict(compared), allow_nan=False))
    assert tree["reference"]["runs"]["7"]["value"] is None


NEVER = "never 0.05: more seeds are needed to decide anything."


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([1], f"1 pair can reach p = 1, {NEVER}"),
        ([5, 5], f"5 pairs can reach p = 0.125 over 2 tests, {NEVER}"),
        ([7, 7], "7 pairs can reach p = 0.0312 over 2 tests."),
        (
            [3, 12],
            "3 to 12 pairs can reach p = 0.000977 to 0.25 over 2 tests; some tests can never reach 0.05.",
        ),
    ],
)
def test_what_pairs_can_reach_follows_from_holms_correction(pairs, said):
    assert smallest_p_note(pairs) == said


def test_for_programs(found):
    first = json.loads(json.dumps(as_dict(found)))["others"][0]
    assert first["paired"]["difference"] == found.rows[0].paired.difference
    assert first["runs"]["0"] == {"run_id": "trial 3-0", "value": 0.55}
    assert (first["p_holm"], first["verdict"], first["differs"]) == (0.0625, "undecided", ["lr"])


def test_what_each_seed_chose_for_itself_is_no_difference(store, searched):
    sweep = searched[1]
    assert all("evaluation.knn.k" in seed.chosen for its in sweep.settings for seed in its.seeds)
    compared = compare_settings(find_settings(Runs(store.tracker), [sweep.id]))
    assert compared.metric == "test/accuracy"  # the formula knows no other on test
    assert not [key for row in compared.rows for key in row.differs if key.startswith("evaluation.")]


def test_the_command(store, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracker.uri)
    store.sweep("commanded", {"as written": CE, "trial 3": SUPCON})
    words = ["compare", "commanded", "--metric", "accuracy", "--home", str(tmp_path)]
    table = CliRunner().invoke(app, words)
    assert (table.exit_code, "better" in table.stdout) == (0, True)
    tree = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert tree["others"][0]["paired"]["p"] == 0.03125
    assert CliRunner().invoke(app, [*words, "--latex"]).stdout.startswith(r"\begin{table}")
    assert CliRunner().invoke(app, [*words, "--markdown"]).stdout.startswith("**test/accuracy")
    both = CliRunner().invoke(app, [*words, "--latex", "--json"]).exception
    assert str(both) == "key --markdown, --latex, --json: one form at a time; found: several"
    assert isinstance(CliRunner().invoke(app, ["compare", "nothing", "--metric", "x"]).exception, UserError)
