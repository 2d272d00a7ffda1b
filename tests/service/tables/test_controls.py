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
    table_rows = FOLLOWED["rows"]
    return {
        **FOLLOWED,
        "rows": {**table_rows, row: {**table_rows[row], "tune": {**table_rows[row]["tune"], **change}}},
    }


def searched(report, scope):
    return Ledger(report.folder).counted_trials(scope)


def best(trials):
    return max((trial for trial in trials if trial.state is State.COMPLETE), key=lambda trial: trial.score)


def test_rows_hold_and_begin_at_what_the_control_has_found(tables):
    report = tables.run(tables.plan(FOLLOWED))
    assert report.state is State.COMPLETE
    labels = [event.row.label for event in tables.events if event.kind == "begin"]
    order = ["Base, All", "Base, Few", "Warm, All", "Warm, Few"]
    assert [labels[place].partition(", trial")[0] for place in (0, 6, 12, 18)] == order
    for column in ("all", "few"):
        settings, trials = (
            best(searched(report, f"base_{column}")).settings,
            searched(report, f"warm_{column}"),
        )
        assert {trial.job["objective"]["heads"]["detail"]["temperature"] for trial in trials} == {
            settings[HELD]
        }
        assert {trial.settings[HELD] for trial in trials} == {settings[HELD]}
        assert (trials[0].settings[START], trials[0].settings[OWN]) == (settings[START], 0.01)
        assert len({(trial.settings[START], trial.settings[OWN]) for trial in trials}) == len(trials) == 4
        cell = report.cell("Warm", column.title())
        assert cell.settings == best(trials).settings
        assert cell.settings[HELD] == settings[HELD]


def test_the_second_trial_has_the_least_weights_of_the_heads(tables):
    weight, space = "objective.heads.topic.weight", FOLLOWER["tune"]["space"]["space"]
    tree = rows({"space": {"space": {**space, weight: {"log_float": [0.003, 0.5]}}}})
    report = tables.run(tables.plan(tree, only=["warm/few"]))
    first_trial, second_trial, *_ = searched(report, "warm_few")
    assert (first_trial.settings[weight], second_trial.settings[weight]) == (0.2, pytest.approx(0.003))
    assert second_trial.settings[START] == pytest.approx(best(searched(report, "base_few")).settings[START])
    assert second_trial.settings[OWN] == pytest.approx(first_trial.settings[OWN])


def test_a_table_that_is_killed_ends_as_an_unbroken_one(world):
    assert_kills_end_equal(world, FOLLOWED, 8, only=["*/few"])


def test_a_control_with_more_trials_has_its_followers_searched_again(tables):
    first_report = tables.run(tables.plan(FOLLOWED))
    best_trials = {column: best(searched(first_report, f"base_{column}")) for column in ("all", "few")}
    changes = {"trials": 12}
    tree = rows(changes, "Base")
    second_report = tables.run(tables.plan(tree))
    assert (second_report.id, second_report.state) == (first_report.id, State.COMPLETE)
    for column in ("all", "few"):
        control_trial, trials = (
            best(searched(second_report, f"base_{column}")),
            searched(second_report, f"warm_{column}"),
        )
        assert control_trial.score >= best_trials[column].score
        assert {trial.settings[HELD] for trial in trials} == {control_trial.settings[HELD]}
        assert len(trials) == 4
    assert plan_table(tables.plan(tree), tables.home)["trainings"]["missing"] == 0


def test_a_table_stopped_before_followers_of_another_pick_are_searched_is_not_complete(tables):
    parameters = {HELD: {"choice": [0.05, 0.1, 0.3, 0.2]}, START: SPACE[START]}
    random_space = {"space": parameters, "search": {"scheduler": "none", "sampler": "random"}}

    def plan(trials):
        base_row = {"tune": {"space": random_space, "trials": trials}}
        warm_row = {**FOLLOWER, "tune": {**FOLLOWER["tune"], "space": random_space}}
        return tables.plan({"rows": {"Warm": warm_row, "Base": base_row}})

    held_value = best(searched(tables.run(plan(2)), "base_all")).settings[HELD]
    tables.stop_when(lambda job, epoch: job.train.weight_decay != 0.02 and job.train.seed == 2 and epoch == 4)
    stopped_report = tables.run(plan(12))
    assert best(searched(stopped_report, "base_all")).settings[HELD] != held_value
    assert {trial.settings[HELD] for trial in searched(stopped_report, "warm_all")} == {held_value}
    assert stopped_report.state is State.STOPPED
    assert plan_table(plan(12), tables.home)["trainings"]["missing"] == 6
    training_count = len(tables.trained())
    assert tables.run(plan(12)).state is State.COMPLETE
    assert 0 < len(tables.trained()) - training_count <= 6


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
    training_count = len(tables.trained())
    whole = tables.run(tables.plan(FOLLOWED))
    assert (whole.state, len(tables.trained()) - training_count) == (State.COMPLETE, 12)
    assert whole.cell("Warm", "Few").figures == part.cell("Warm", "Few").figures


def test_a_search_that_followed_another_trial_is_not_taken_over(tables, monkeypatch):
    tables.run(tables.plan(FOLLOWED, only=["warm/few"]))
    plan = tables.plan(FOLLOWED)
    (warm_cell,) = (cell for cell in TableTrainings(plan, tables.home).tuned if cell.scope == "warm_few")
    (ledger,) = TableTrainings(plan, tables.home).all_ledgers
    assert warm_cell.follow({warm_cell.control: ledger})
    assert warm_cell.is_whole_in(ledger)
    (pick,) = warm_cell.control.picks(ledger)
    other_trial = next(trial for trial in ledger.trials(scope="base_few") if trial.label != pick.trial)
    monkeypatch.setattr(warm_cell.control, "picks", lambda _ledger: [best_candidate(other_trial)])
    assert warm_cell.follow({warm_cell.control: ledger})
    assert not warm_cell.is_whole_in(ledger)


def test_a_row_that_holds_every_key_is_trained_as_the_control_was_found(tables):
    """Tests that a space of a single point is searched with one trial."""
    follower = {"tune": tune(SPACE, control="Base", hold=[HELD, START]), "set": {"train.weight_decay": 0.02}}
    tree = {**FOLLOWED, "rows": {"Warm": follower, "Base": CONTROL}}
    missing_count = plan_table(tables.plan(tree, only=["*/few"]), tables.home)["trainings"]["missing"]
    report = tables.run(tables.plan(tree, only=["*/few"]))
    assert (report.state, missing_count, len(tables.trained())) == (State.COMPLETE, 9, 9)
    (trial,) = searched(report, "warm_few")
    assert trial.settings == pytest.approx(best(searched(report, "base_few")).settings)


def test_without_a_best_trial_of_the_control_nothing_follows(tables):
    tables.formula.fails = lambda job, _epoch: job.train.weight_decay != 0.02
    report = tables.run(tables.plan(FOLLOWED, only=["*/few"]))
    assert (report.state, report.missing) == (State.FAILED, ["warm/few Acc", "base/few Acc"])
    assert report.cell("Warm", "Few").reasons == ("its control base/few has no best trial",)


def test_a_control_and_its_keys_are_part_of_what_a_table_is(tables):
    trees = [FOLLOWED, rows({"hold": [HELD, START], "start": []}), rows({"hold": [], "start": [HELD, START]})]
    plans = [tables.plan(tree, name=f"table-{number}") for number, tree in enumerate(trees)]
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
    with pytest.raises(UserError, match=text) as error:
        tables.run(tables.plan(tree))
    assert "\n" not in error.value.line()
    assert not list(tables.home.glob("tables/mlcl-*"))
