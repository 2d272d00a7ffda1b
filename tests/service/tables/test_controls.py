"""Tests of the control of a column, which is searched before the rows that follow it."""

import json

import pytest
from reproduced import TABLE, assert_kills_end_equal

from mlcl.errors import UserError
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.confirmation import best_candidate
from mlcl.service.tables.cost import plan_table
from mlcl.service.tables.trainings import TableTrainings
from mlcl.tracking import State

HELD, START, OWN = "objective.heads.detail.temperature", "objective.heads.topic.temperature", "train.lr"
SPACE = {HELD: {"choice": [0.05, 0.1, 0.3]}, START: {"log_float": [0.05, 1.0]}}


def tune(space, **more):
    return {"space": {"space": space, "search": {"scheduler": "none"}}, "trials": 4, **more}


CONTROL = {"tune": tune(SPACE)}
FOLLOWER = {
    "tune": tune({**SPACE, OWN: {"log_float": [0.001, 0.1]}}, control="Base", hold=[HELD], start=[START]),
    "set": {"train.weight_decay": 0.02},
}
FOLLOWED = {
    "rows": {"Warm": FOLLOWER, "Base": CONTROL},
    "columns": {"All": {}, "Few": {"set": {"data.subset": {"n": 24}}}},
}
"""A table of 24 trainings. In both columns the row Warm follows the row Base, which is listed later."""


def rows(change, row="Warm"):
    """Returns `FOLLOWED` with changed keys in the search of a row."""
    both = FOLLOWED["rows"]
    return {**FOLLOWED, "rows": {**both, row: {**both[row], "tune": {**both[row]["tune"], **change}}}}


def searched(report, scope):
    return Ledger(report.folder).counted(scope)


def best(trials):
    return max((each for each in trials if each.state is State.COMPLETE), key=lambda each: each.score)


def test_rows_hold_and_begin_at_what_the_control_has_found(tables):
    report = tables.run(tables.plan(FOLLOWED))
    assert report.state is State.COMPLETE
    labels = [event.row.label for event in tables.events if event.kind == "begin"]
    order = ["Base, All", "Base, Few", "Warm, All", "Warm, Few"]
    assert [labels[at].partition(", trial")[0] for at in (0, 6, 12, 18)] == order
    for column in ("all", "few"):
        its, trials = best(searched(report, f"base_{column}")).settings, searched(report, f"warm_{column}")
        assert {each.job["objective"]["heads"]["detail"]["temperature"] for each in trials} == {its[HELD]}
        assert {each.settings[HELD] for each in trials} == {its[HELD]}
        assert (trials[0].settings[START], trials[0].settings[OWN]) == (its[START], 0.01)
        assert len({(each.settings[START], each.settings[OWN]) for each in trials}) == len(trials) == 4
        cell = report.cell("Warm", column.title())
        assert cell.settings == best(trials).settings
        assert cell.settings[HELD] == its[HELD]


def test_the_second_trial_has_the_least_weights_of_the_heads(tables):
    weight, space = "objective.heads.topic.weight", FOLLOWER["tune"]["space"]["space"]
    tree = rows({"space": {"space": {**space, weight: {"log_float": [0.003, 0.5]}}}})
    report = tables.run(tables.plan(tree, only=["warm/few"]))
    first, second, *_ = searched(report, "warm_few")
    assert (first.settings[weight], second.settings[weight]) == (0.2, pytest.approx(0.003))
    assert second.settings[START] == pytest.approx(best(searched(report, "base_few")).settings[START])
    assert second.settings[OWN] == pytest.approx(first.settings[OWN])


def test_a_table_that_is_killed_ends_as_an_unbroken_one(world):
    assert_kills_end_equal(world, FOLLOWED, 8, only=["*/few"])


def test_a_control_with_more_trials_has_its_followers_searched_again(tables):
    first = tables.run(tables.plan(FOLLOWED))
    found = {column: best(searched(first, f"base_{column}")) for column in ("all", "few")}
    more = {"trials": 12}
    tree = rows(more, "Base")
    second = tables.run(tables.plan(tree))
    assert (second.id, second.state) == (first.id, State.COMPLETE)
    for column in ("all", "few"):
        control, trials = best(searched(second, f"base_{column}")), searched(second, f"warm_{column}")
        assert control.score >= found[column].score
        assert {each.settings[HELD] for each in trials} == {control.settings[HELD]}
        assert len(trials) == 4
    assert plan_table(tables.plan(tree), tables.home)["trainings"]["missing"] == 0


def test_a_table_stopped_before_followers_of_another_pick_are_searched_is_not_complete(tables):
    choice = {HELD: {"choice": [0.05, 0.1, 0.3, 0.2]}, START: SPACE[START]}
    random = {"space": choice, "search": {"scheduler": "none", "sampler": "random"}}

    def plan(trials):
        base = {"tune": {"space": random, "trials": trials}}
        warm = {**FOLLOWER, "tune": {**FOLLOWER["tune"], "space": random}}
        return tables.plan({"rows": {"Warm": warm, "Base": base}})

    before = best(searched(tables.run(plan(2)), "base_all")).settings[HELD]
    tables.stop_when(lambda job, epoch: job.train.weight_decay != 0.02 and job.train.seed == 2 and epoch == 4)
    stopped = tables.run(plan(12))
    assert best(searched(stopped, "base_all")).settings[HELD] != before
    assert {its.settings[HELD] for its in searched(stopped, "warm_all")} == {before}
    assert stopped.state is State.STOPPED
    assert plan_table(plan(12), tables.home)["trainings"]["missing"] == 6
    trained = len(tables.trained())
    assert tables.run(plan(12)).state is State.COMPLETE
    assert 0 < len(tables.trained()) - trained <= 6


def test_a_dry_run_counts_what_a_run_trains(tables):
    trainings = plan_table(tables.plan(FOLLOWED), tables.home)["trainings"]
    assert (trainings["all"], trainings["missing"]) == (24, 24)
    tables.run(tables.plan(FOLLOWED))
    assert len(tables.trained()) == 24
    after = plan_table(tables.plan(FOLLOWED), tables.home)["trainings"]
    assert (after["all"], after["missing"]) == (24, 0)


def test_a_part_has_the_controls_that_it_needs_and_the_whole_takes_it_over(tables):
    part = tables.run(tables.plan(FOLLOWED, only=["warm/few"]))
    assert [cell.id for cell in part.cells] == ["warm/few", "base/few"]
    trained = len(tables.trained())
    whole = tables.run(tables.plan(FOLLOWED))
    assert (whole.state, len(tables.trained()) - trained) == (State.COMPLETE, 12)
    assert whole.cell("Warm", "Few").figures == part.cell("Warm", "Few").figures


def test_a_search_that_followed_another_trial_is_not_taken_over(tables, monkeypatch):
    tables.run(tables.plan(FOLLOWED, only=["warm/few"]))
    plan = tables.plan(FOLLOWED)
    (warm,) = (cell for cell in TableTrainings(plan, tables.home).tuned if cell.scope == "warm_few")
    (ledger,) = TableTrainings(plan, tables.home).all_ledgers
    assert warm.follow({warm.control: ledger})
    assert warm.is_whole_in(ledger)
    (pick,) = warm.control.picks(ledger)
    other = next(trial for trial in ledger.trials(scope="base_few") if trial.label != pick.trial)
    monkeypatch.setattr(warm.control, "picks", lambda _ledger: [best_candidate(other)])
    assert warm.follow({warm.control: ledger})
    assert not warm.is_whole_in(ledger)


def test_a_row_that_holds_every_key_is_trained_as_the_control_was_found(tables):
    """Tests that a space of a single point is searched with one trial."""
    alike = {"tune": tune(SPACE, control="Base", hold=[HELD, START]), "set": {"train.weight_decay": 0.02}}
    tree = {**FOLLOWED, "rows": {"Warm": alike, "Base": CONTROL}}
    missing = plan_table(tables.plan(tree, only=["*/few"]), tables.home)["trainings"]["missing"]
    report = tables.run(tables.plan(tree, only=["*/few"]))
    assert (report.state, missing, len(tables.trained())) == (State.COMPLETE, 9, 9)
    (trial,) = searched(report, "warm_few")
    assert trial.settings == pytest.approx(best(searched(report, "base_few")).settings)


def test_without_a_best_trial_of_the_control_nothing_follows(tables):
    tables.formula.fails = lambda job, _epoch: job.train.weight_decay != 0.02
    report = tables.run(tables.plan(FOLLOWED, only=["*/few"]))
    assert (report.state, report.missing) == (State.FAILED, ["warm/few Acc", "base/few Acc"])
    assert report.cell("Warm", "Few").reasons == ("its control base/few has no best trial",)


def test_a_control_and_its_keys_are_part_of_what_a_table_is(tables):
    trees = [FOLLOWED, rows({"hold": [HELD, START], "start": []}), rows({"hold": [], "start": [HELD, START]})]
    plans = [tables.plan(tree, name=f"table-{at}") for at, tree in enumerate(trees)]
    assert len({TableTrainings(plan, tables.home).identity for plan in plans}) == 3
    assert json.dumps(TableTrainings(plans[0], tables.home).tuned[-1].identity).count("base/few") == 1


WITHOUT_FEW = {**FOLLOWED, "rows": {"Warm": FOLLOWER, "Base": {**CONTROL, "columns": ["All"]}}}
NOT_TUNED = {**FOLLOWED, "rows": {"Warm": FOLLOWER, "Base": {}}}
CHAIN = {**rows({"control": "Cold", "hold": [HELD]}, "Base")}
CHAIN["rows"] = {**CHAIN["rows"], "Cold": {**TABLE["rows"]["Cold"], **CONTROL}}


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (WITHOUT_FEW, "the control of warm/few is not searched in this column"),
        (NOT_TUNED, "the control of warm/all is not searched in this column"),
        (CHAIN, "a control follows no other row"),
        (rows({"control": "Nobody"}), "tune.control: no row Nobody"),
        (rows({"control": None}), "control goes with hold or start"),
        (rows({"hold": [], "start": []}), "control goes with hold or start"),
        (rows({"hold": [HELD], "start": [HELD]}), "stands twice"),
        (rows({"hold": [OWN]}), "not an entry that the spaces of Warm and of its control share"),
        (rows({"searches": 2}), "other searches than its control"),
        (rows({"hold": ["evaluation.knn.k"]}), "not an entry"),
        (rows(tune({**SPACE, HELD: {"choice": [0.05, 0.1]}}), "Base"), "not an entry"),
    ],
)
def test_what_cannot_be_followed_is_refused(tables, tree, text):
    with pytest.raises(UserError, match=text) as caught:
        tables.run(tables.plan(tree))
    assert "\n" not in caught.value.line()
    assert not list(tables.home.glob("tables/mlcl-*"))
