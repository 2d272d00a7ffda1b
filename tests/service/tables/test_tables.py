"""What `mlcl reproduce` does: it trains what is missing, once, and says truly what became of it."""

import json
import math

import pytest
from builders import job_tree, text_dataset
from formula import in_process
from reproduced import Tables

from mlcl.errors import UserError
from mlcl.files import locked
from mlcl.service import run_job
from mlcl.service.engine import command, engine, shared_runs, trial
from mlcl.service.engine.recovery import recover
from mlcl.service.tables import table
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import State
from mlcl.tracking.cursor import Cursor
from mlcl.tracking.log import log_folder
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData
from mlcl.training.run_files import EMBEDDINGS, RESULT

TWICE = {"columns": {"All": {}, "Again": {}, "More": {"set": {"train.lr": 0.02}}}}
LABELS = [f"{row}, All, seed {seed}" for seed in (0, 1) for row in ("Cold", "Warm")]


@pytest.fixture
def tables(tiny, tmp_path, monkeypatch):
    return Tables(tmp_path / "home", monkeypatch, tiny)


def by_id(report):
    return {cell.id: cell for cell in report.cells}


def expected(tables, plan, cell):
    jobs = next(each.jobs for each in plan.cells if each.id == cell)
    return tuple(tables.formula.score(job, 4) / 2 for job in jobs)


def test_every_seed_of_every_cell_is_trained_and_shown(tables):
    plan = tables.plan({"paper": {"Cold": {"All": 9}, "Warm": {"All": 0.2}}})
    report = tables.run(plan)
    assert (report.state, report.reason, report.missing) == (State.COMPLETE, "", [])
    for cell in report.cells:
        assert cell.figures[0].values == expected(tables, plan, cell.id)
    assert report.outside == ["cold/all Acc"]
    assert [tables.logs()[label]["end"] for label in LABELS] == [["COMPLETE", ""]] * 4
    assert all(tables.logs()[label]["nested"] for label in LABELS)
    assert [event.text for event in tables.events if event.kind == "end"] == ["table table COMPLETE"]
    assert tables.states() == ["COMPLETE"] * 4
    told = tables.logs()["table"]
    mean = by_id(report)["cold/all"].figures[0].mean
    assert told["points"]["cold/all/acc 4"] == mean
    assert told["points"]["cold/all/acc/printed 4"] == 9
    assert (told["tags"]["mlcl.outside"], told["tags"]["mlcl.command"]) == ("1", plan.command)
    assert json.loads((report.folder / "table.json").read_text())["cells"][0]["figures"][0]["mean"] == mean


def test_a_second_command_trains_nothing_and_tells_the_same(tables):
    first = tables.run(tables.plan())
    trained, files = list(tables.formula.trained), tables.everything()
    assert tables.run(tables.plan()) == first
    assert tables.formula.trained == trained
    assert tables.everything() == files


def test_equal_jobs_are_trained_once(tables):
    report = tables.run(tables.plan(TWICE))
    cells = by_id(report)
    assert len(tables.trained()) == 8
    assert cells["cold/all"].runs == cells["cold/again"].runs != cells["cold/more"].runs
    tables.run(tables.plan({"columns": {"Third": {}}}, name="other"))
    assert len(tables.trained()) == 8
    tables.run(tables.plan({"experiment": "another"}, name="other"))
    assert len(tables.trained()) == 12


def test_a_plain_run_of_a_cells_job_is_its_run(tables, monkeypatch):
    for name, enter_workdir in (("Delivery", command.Delivery), ("run_experiment", tables.formula)):
        monkeypatch.setattr(run_job, name, enter_workdir)
    monkeypatch.setattr(run_job, "Tracker", command.Tracker)
    plan = tables.plan()
    ran = run_job.run_job(plan.cells[1].jobs[0], home=tables.home, listener=lambda _: None)
    report = tables.run(plan)
    assert by_id(report)["warm/all"].runs[0] == ran.id
    assert len(tables.trained()) == 4


def test_the_first_seed_of_every_cell_comes_first(tables):
    tables.run(tables.plan())
    began = [event.row.label for event in tables.events if event.kind == "begin"]
    assert began == LABELS


def test_more_seeds_train_those_alone_and_fewer_none(tables):
    two = tables.run(tables.plan())
    three = tables.run(tables.plan(seeds=3))
    assert len(tables.trained()) == 6
    assert by_id(three)["warm/all"].runs[:2] == by_id(two)["warm/all"].runs
    one = tables.run(tables.plan(seeds=1))
    assert len(tables.trained()) == 6
    assert by_id(one)["warm/all"].figures[0].values == by_id(two)["warm/all"].figures[0].values[:1]
    # Each was asked for in another way: what stands in its folder and its log is about that alone.
    assert len({two.id, three.id, one.id}) == 3
    assert tables.run(tables.plan(only=["warm"])).id not in {two.id, three.id, one.id}
    assert tables.run(tables.plan(seeds=2)) == tables.run(tables.plan(seeds=2))


def test_another_figure_in_the_file_is_another_table_with_the_same_runs(tables):
    first = tables.run(tables.plan())
    second = tables.run(tables.plan({"paper": {"Cold": {"All": 9}}}))
    assert second.id != first.id
    assert (len(tables.trained()), second.outside) == (4, ["cold/all Acc"])
    assert tables.run(tables.plan()).id == first.id


def test_another_share_or_place_of_a_process_is_no_other_run(tables, tmp_path):
    first = tables.run(tables.plan())
    assert tables.run(tables.plan(cpus=0.5)).id == first.id
    assert len(tables.trained()) == 4


def test_other_data_under_the_same_path_are_other_runs(tables, tmp_path):
    text_dataset(tmp_path / "data")
    tables.write("job", job_tree(tmp_path / "data"))
    first = tables.run(tables.plan())
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    text_dataset(tmp_path / "data", seed=1)
    second = tables.run(tables.plan())
    assert len(tables.trained()) == 8
    assert second.id != first.id
    assert not set(by_id(first)["cold/all"].runs) & set(by_id(second)["cold/all"].runs)


def test_overrides_reach_every_job_and_nothing_is_judged(tables):
    report = tables.run(tables.plan({"paper": {"Cold": {"All": 9}}}, overrides={"train.epochs": 2}))
    assert {epoch for _, epoch in tables.formula.trained} == {1, 2}
    assert (report.limits, report.outside) == ({}, [])
    assert report.command.endswith("table.yaml train.epochs=2")


def test_who_says_where_something_lies_keeps_the_papers_setting(tables, tiny):
    tree = {"paper": {"Cold": {"All": 9}}, "places": ["data.path"]}
    report = tables.run(tables.plan(tree, overrides={"data.path": str(tiny)}))
    assert report.outside == ["cold/all Acc"]
    both = {"data.path": str(tiny), "train.batch_size": 4}
    assert tables.run(tables.plan(tree, overrides=both)).limits == {}


@pytest.mark.parametrize("value", [None, "seeded", 0.5])
def test_what_is_no_place_keeps_no_table_judged(tables, value):
    tree = {"paper": {"Cold": {"All": 9}}, "places": ["data.options.splits"]}
    assert tables.plan(tree).tolerance("Acc") == 5
    assert tables.plan(tree, overrides={"data.options.splits": value}).tolerance("Acc") is None


def test_a_scale_has_a_name_a_folder_and_words_of_its_own(tables):
    scales = {"small": {"about": "Two epochs.", "seeds": 1, "set": {"train.epochs": 2}, "tolerance": 1}}
    tree = {"scales": scales, "about": "Batch size is ours."}
    report = tables.run(tables.plan(tree, scale="small"))
    assert (report.name, report.about) == ("table@small", "Two epochs. Batch size is ours.")
    assert (report.cells[0].figures[0].tolerance, len(tables.trained())) == (1, 2)
    assert report.command.endswith("table.yaml --scale small")
    assert tables.run(tables.plan(tree)).id != report.id


def test_a_stop_is_gone_on_from(tables):
    tables.stop_when(lambda _job, epoch: len(tables.trained()) == 2 and epoch == 3)
    report = tables.run(tables.plan())
    assert (report.state, report.reason) == (State.STOPPED, "")
    assert tables.states() == ["COMPLETE", "STOPPED"]
    assert (tables.logs()[LABELS[1]]["end"], tables.logs()["table"]["end"]) == (
        ["STOPPED", ""],
        ["STOPPED", ""],
    )
    assert tables.states("tables") == ["STOPPED"]
    assert [cell.figures[0].verdict for cell in report.cells] == ["missing"] * 2
    assert "Missing in all of All: not run." in (report.folder / "table.md").read_text()
    assert not (report.folder / "STOP").exists()
    done = len(tables.formula.trained)
    again = tables.run(tables.plan())
    assert (again.state, again.id) == (State.COMPLETE, report.id)
    assert tables.formula.trained[done] == (tables.trained()[1], 4)  # the epoch after its checkpoint
    assert tables.states() == ["COMPLETE"] * 4


def test_a_stop_when_all_is_there_changes_nothing(tables):
    tables.stop_when(lambda _job, epoch: len(tables.trained()) == 4 and epoch == 4)
    assert tables.run(tables.plan()).state is State.COMPLETE


def test_whoever_insists_on_a_stop_finds_nothing_running(tables):
    def insist(_job, epoch):
        if len(tables.trained()) == 2 and epoch == 3:
            tables.formula.before = lambda _job, _epoch: None
            raise KeyboardInterrupt

    tables.formula.before = insist
    assert tables.run(tables.plan()).state is State.STOPPED
    assert (tables.states(), tables.states("tables")) == (["COMPLETE", "STOPPED"], ["STOPPED"])
    assert all(log["end"] is not None for log in tables.logs().values())
    assert tables.run(tables.plan()).state is State.COMPLETE


def test_whoever_insists_while_figures_are_read_does_not_wait_for_them(tables, monkeypatch):
    def insist(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(table.Figures, "cell", insist)
        with pytest.raises(KeyboardInterrupt):
            tables.run(tables.plan())
    assert (tables.states(), tables.states("tables")) == (["COMPLETE"] * 4, ["STOPPED"])
    assert tables.logs()["table"]["end"] == ["STOPPED", ""]
    assert tables.run(tables.plan()).state is State.COMPLETE


def test_a_failure_has_its_reason_and_the_others_run(tables):
    tables.formula.fails = lambda job, epoch: job.train.seed == 0 and epoch == 2 and _is_cold(job)
    report = tables.run(tables.plan())
    reason = "Diverged: the loss is not finite [step 20]"
    assert (report.state, report.reason) == (State.FAILED, "1 of 4 runs are missing")
    cold, warm = report.cells
    assert (cold.reasons, cold.runs[0], cold.figures[0].verdict) == ((reason,), None, "missing")
    assert (warm.reasons, warm.figures[0].verdict) == ((), "not judged")
    assert tables.states() == ["FAILED", "COMPLETE", "COMPLETE", "COMPLETE"]
    assert tables.logs()[LABELS[0]]["end"] == ["FAILED", reason]
    assert reason in (report.folder / "table.md").read_text()
    # The next command tries it again, from the start.
    tables.formula.fails = lambda _job, _epoch: False
    again = tables.run(tables.plan())
    assert (again.state, again.id, again.cells[0].reasons) == (State.COMPLETE, report.id, ())
    assert sorted(tables.states()) == ["COMPLETE"] * 4 + ["FAILED"]


def _is_cold(job):
    return job.objective.heads["detail"].temperature == 0.05


def test_a_row_that_always_fails_keeps_no_other_from_being_trained(tables):
    tables.formula.fails = lambda job, _epoch: _is_cold(job)
    report = tables.run(tables.plan(seeds=6))
    assert by_id(report)["warm/all"].figures[0].verdict == "not judged"
    assert by_id(report)["cold/all"].runs == (None,) * 6


def test_too_many_failures_in_a_row_end_it(tables):
    tables.formula.fails = lambda _job, _epoch: True
    report = tables.run(tables.plan(seeds=4))
    assert report.state is State.FAILED
    assert report.reason.startswith("4 trainings failed in a row")
    assert tables.states() == ["FAILED"] * 4
    assert not (report.folder / "STOP").exists()


@pytest.mark.parametrize(
    ("scale", "text"),
    [(math.nan, "test/accuracy is not a number with seed 0"), (math.inf, "is not a number")],
)
def test_a_figure_that_is_no_number_is_missing_and_told(tables, scale, text):
    tables.formula.scale = lambda job: scale if job.train.seed == 0 and _is_cold(job) else 1.0
    report = tables.run(tables.plan())
    assert (report.state, report.reason) == (State.FAILED, "no number for cold/all Acc")
    assert text in report.cells[0].reasons[0]
    assert None not in report.cells[0].runs
    assert report.cells[0].figures[0].values[0] is None
    json.loads((report.folder / "table.json").read_text(), parse_constant=pytest.fail)
    trained = len(tables.formula.trained)
    assert tables.run(tables.plan()).state is State.FAILED
    assert len(tables.formula.trained) == trained


def test_a_damaged_run_is_its_own_cells_alone(tables):
    report = tables.run(tables.plan())
    damaged = tables.home / "runs" / by_id(report)["cold/all"].runs[1] / RESULT
    damaged.write_text("{")
    again = tables.run(tables.plan())
    assert (again.state, again.missing) == (State.FAILED, ["cold/all Acc"])
    assert str(damaged) in again.cells[0].reasons[0]
    assert again.cells[1] == report.cells[1]
    damaged.unlink()  # a run without figures is not there: it is trained again
    assert tables.run(tables.plan()).state is State.COMPLETE


def test_an_exception_of_the_executor_ends_in_a_true_state(tables, monkeypatch):
    def broken(its, **_):
        its.begin(its.next().key)
        raise RuntimeError("no cluster")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "run_trainings", broken)
        with pytest.raises(RuntimeError, match="no cluster"):
            tables.run(tables.plan())
    assert (tables.states(), tables.states("tables")) == (["STOPPED"], ["FAILED"])
    assert tables.logs()["table"]["end"] == ["FAILED", "RuntimeError: no cluster"]
    assert tables.run(tables.plan()).state is State.COMPLETE
    assert len(tables.trained()) == 4


def test_trainings_that_end_without_a_word_are_no_success(tables, monkeypatch):
    def silent(its, **_):
        while task := its.next():
            its.begin(task.key)
            its.end(task.key, {})

    monkeypatch.setattr(engine, "run_trainings", silent)
    report = tables.run(tables.plan())
    assert (report.state, report.reason) == (State.FAILED, "4 of 4 runs are missing")
    assert tables.states() == ["STOPPED"] * 4


def test_processes_that_die_again_and_again(tables, monkeypatch):
    def deadly(its, **_):
        while task := its.next():
            its.begin(task.key)
            its.begin(task.key)  # a second process
            its.died(task.key, "its process died again and again")
            its.end(task.key, {})  # Tune says both

    monkeypatch.setattr(engine, "run_trainings", deadly)
    report = tables.run(tables.plan(seeds=1))
    assert tables.states() == ["FAILED"] * 2
    assert report.cells[0].reasons == ("its process died again and again",)


def test_a_training_that_never_began_is_handed_out_again(tables, monkeypatch):
    handed = []

    def with_a_dead_process(its, **how):
        if not handed:
            handed.append(its.next().key)
            its.died(handed[0], "its process died")
            return
        in_process(its, **how)

    monkeypatch.setattr(engine, "run_trainings", with_a_dead_process)
    assert tables.run(tables.plan()).state is State.COMPLETE
    assert handed[0] in tables.trained()
    assert tables.states() == ["COMPLETE"] * 4


def test_one_that_never_begins_is_closed_when_the_command_ends(tables, monkeypatch):
    def dead(its, **_):
        its.died(its.next().key, "its process died")
        tables.request.set()

    monkeypatch.setattr(engine, "run_trainings", dead)
    assert tables.run(tables.plan()).state is State.STOPPED
    assert tables.states() == ["STOPPED"]


def test_what_waits_for_a_process_is_nobody_elses(tables, monkeypatch):
    """Another command must neither close it, for it is RUNNING, nor go on with it."""

    def beside(its, **how):
        task = its.next()
        record = RunFolder(tables.home / "runs" / task.key).record
        recover(tables.home)
        assert tables.states() == ["RUNNING"]
        assert RunFolders(tables.home).unfinished(record.job_hash, record.fingerprint) is None
        its.begin(task.key)
        its.end(task.key, {"ended": State.COMPLETE})
        in_process(its, **how)

    monkeypatch.setattr(engine, "run_trainings", beside)
    tables.run(tables.plan())
    assert "its process was killed" not in json.dumps(tables.logs())


def test_a_run_that_another_command_took_up_keeps_its_state(tables, monkeypatch):
    monkeypatch.setattr(shared_runs, "PATIENCE", 0.0)

    def taken(its, **_):
        task = its.next()
        its.begin(task.key)
        with locked(tables.home / "runs" / task.key / ".lock") as mine:
            assert mine
            its.died(task.key, "another process is still training")
        while its.next():
            tables.request.set()

    monkeypatch.setattr(engine, "run_trainings", taken)
    report = tables.run(tables.plan())
    assert tables.states()[0] == "RUNNING"
    assert report.cells[0].reasons[0].startswith("another command trains in ")


def test_two_commands_on_one_table_are_one_too_many(tables, monkeypatch):
    monkeypatch.setattr(command, "LOCK_PATIENCE", 0.0)
    with locked(tables.home / "tables" / ".table.lock") as mine:
        assert mine
        with pytest.raises(UserError, match="another command runs this table"):
            tables.run(tables.plan())
    assert not list(tables.home.glob("tables/mlcl-*"))
    assert tables.run(tables.plan()).state is State.COMPLETE


def test_a_share_that_fits_nowhere_leaves_nothing(tables):
    with pytest.raises(UserError) as caught:
        tables.run(tables.plan(cpus=64))
    assert caught.value.key == "--cpus/--gpus"
    assert not list(tables.home.glob("*/mlcl-*"))


def test_scratch_of_a_killed_command_is_taken_away(tables):
    report = tables.run(tables.plan())
    (report.folder / "ray-1").mkdir()
    tables.run(tables.plan())
    assert not (report.folder / "ray-1").exists()


def test_a_log_that_mlflow_refused_is_begun_anew(tables):
    tables.run(tables.plan())
    logs = {path.name for path in (tables.home / "logs").iterdir()}
    for id in logs:
        Cursor(undeliverable="no").write(log_folder(tables.home, id))
    report = tables.run(tables.plan())
    assert report.state is State.COMPLETE
    assert {path.name for path in (tables.home / "logs").iterdir()} - logs == {f"{report.id}-2"}


def test_another_store_gets_a_log_of_its_own(tables, monkeypatch):
    first = tables.run(tables.plan())
    away = type("Away", (), {"uri": "elsewhere", "experiment": str, "safe": str})()
    monkeypatch.setattr(command, "Tracker", lambda _home: away)
    second = tables.run(tables.plan())
    assert (second.id, second.cells) == (first.id, first.cells)
    record = RunFolders(tables.home, "tables").named("table").record
    assert (record.log, record.tracking_uri) == (f"{first.id}-2", "elsewhere")
    assert len(tables.trained()) == 4


KNN = {"k": 7, "lambda": 0.75, "temperature": 0.5}
FREE = {f"evaluation.knn.{name}": value for name, value in KNN.items()}
SHOWN = {"Acc": "knn/test/accuracy", "F1": "knn/val/macro_f1", "Alone": "test/accuracy"}


@pytest.fixture
def real(tables, monkeypatch):
    """Real trainings, of one epoch."""
    monkeypatch.setattr(trial, "run_experiment", run_experiment)
    monkeypatch.setattr(trial, "JobData", JobData)

    def run(rows, name="table"):
        tree = {"metrics": SHOWN, "seeds": 1, "rows": rows, "set": {"train.epochs": 1}}
        return tables.run(tables.plan(tree, name=name))

    return run


def test_neighbours_of_a_row_are_those_of_a_run_with_that_setting(tables, real):
    jobs, rows = real({"jobs": {}, "rows": {"set": FREE}}).cells
    assert (len(tables.states()), jobs.runs) == (1, rows.runs)
    (trained,) = real({"own": {"set": {"evaluation.knn": KNN}}}, name="own").cells
    assert len(tables.states()) == 2
    values = [[figure.values[0] for figure in cell.figures] for cell in (rows, trained, jobs)]
    assert values[0] == pytest.approx(values[1], abs=1e-12)
    assert values[0][:2] != values[2][:2]
    assert values[0][2] == values[2][2]


def test_neighbours_without_embeddings_are_told_in_their_cell(tables, real):
    rows = {"jobs": {}, "rows": {"set": FREE}}
    first = real(rows)
    (tables.home / "runs" / first.cells[0].runs[0] / EMBEDDINGS).unlink()
    jobs, asked = real(rows).cells
    assert jobs == first.cells[0]
    assert "the run's embeddings cannot be read" in asked.reasons[0]
    assert [figure.verdict for figure in asked.figures] == ["missing"] * 3
