"""Tests that a command on a table trains what is missing, once, and reports the state of every cell."""

import json
import math
from types import SimpleNamespace

import pytest
from builders import job_tree, text_dataset
from formula import in_process
from reproduced import TUNED

from mlcl.errors import UserError
from mlcl.files import lock_file
from mlcl.service import run_job
from mlcl.service.engine import command, engine, shared_runs, trial
from mlcl.service.engine.closing import recover
from mlcl.service.tables import table
from mlcl.service.tables.cost import plan_table
from mlcl.service.tables.trainings import TableTrainings
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import State
from mlcl.tracking.cursor import Cursor
from mlcl.tracking.log import log_folder
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData
from mlcl.training.run_files import EMBEDDINGS, RESULT

LABELS = [f"{row}, All, seed {seed}" for seed in (0, 1) for row in ("Cold", "Warm")]


def by_id(report):
    return {cell.id: cell for cell in report.cells}


def is_cold(job):
    return job.objective.heads["detail"].temperature == 0.05


def test_every_seed_of_every_cell_is_trained_and_shown(tables):
    plan = tables.plan({"paper": {"Cold": {"All": 9}, "Warm": {"All": 0.2}}})
    report = tables.run(plan)
    assert (report.state, report.reason, report.missing) == (State.COMPLETE, "", [])
    for cell, planned_cell in zip(report.cells, plan.cells, strict=True):
        assert cell.figures[0].values == tuple(tables.formula.score(job, 4) / 2 for job in planned_cell.jobs)
    assert report.outside == ["cold/all Acc"]
    assert [event.row.label for event in tables.events if event.kind == "begin"] == LABELS
    assert [event.text for event in tables.events if event.kind == "end"] == ["table table COMPLETE"]
    assert tables.states() == ["COMPLETE"] * 4
    logs, mean = tables.logs(), by_id(report)["cold/all"].figures[0].mean
    assert [logs[label]["end"] for label in LABELS] == [["COMPLETE", ""]] * 4
    assert {logs[label]["start"]["parent"] for label in LABELS} == {report.id}
    points, tags = logs["table"]["points"], logs["table"]["tags"]
    assert (points["cold/all/acc 0"], points["cold/all/acc/printed 0"]) == (mean, 9)
    assert (tags["mlcl.outside"], tags["mlcl.command"]) == ("1", plan.command)
    assert json.loads((report.folder / "table.json").read_text())["cells"][0]["figures"][0]["mean"] == mean


@pytest.mark.parametrize("tree", [{}, TUNED], ids=["plain", "tuned"])
def test_a_second_command_trains_nothing_and_reports_the_same(tables, tree):
    first_report = tables.run(tables.plan(tree))
    trained_epochs, contents = list(tables.formula.trained), tables.everything()
    (first_report.folder / "ray-1").mkdir()  # temporary files of a killed command
    assert tables.run(tables.plan(tree, cpus=0.5)) == first_report
    assert (tables.formula.trained, tables.everything()) == (trained_epochs, contents)
    assert not (first_report.folder / "ray-1").exists()
    assert ("8 of 8 runs are done" if tree else "4 of 4 runs are done") in tables.notes()


def test_equal_jobs_are_trained_once(tables):
    columns = {"All": {}, "Again": {}, "More": {"set": {"train.lr": 0.02}}}
    cells = by_id(tables.run(tables.plan({"columns": columns})))
    assert len(tables.trained()) == 8
    assert cells["cold/all"].runs == cells["cold/again"].runs != cells["cold/more"].runs
    tables.run(tables.plan({"columns": {"Third": {}}}, name="other"))
    assert len(tables.trained()) == 8
    tables.run(tables.plan({"experiment": "another"}, name="other"))
    assert len(tables.trained()) == 12


def test_a_plain_run_of_a_cells_job_is_its_run(tables, monkeypatch):
    for name, replacement in (("Delivery", command.Delivery), ("run_experiment", tables.formula)):
        monkeypatch.setattr(run_job, name, replacement)
    monkeypatch.setattr(run_job, "Tracker", command.Tracker)
    plan = tables.plan()
    run = run_job.run_job(plan.cells[1].jobs[0], home=tables.home, listener=lambda _: None)
    report = tables.run(plan)
    assert by_id(report)["warm/all"].runs[0] == run.id
    assert len(tables.trained()) == 4


def test_more_seeds_train_those_alone_and_fewer_none(tables):
    two_seeds = tables.run(tables.plan())
    three_seeds = tables.run(tables.plan(seeds=3))
    assert len(tables.trained()) == 6
    assert by_id(three_seeds)["warm/all"].runs[:2] == by_id(two_seeds)["warm/all"].runs
    one_seed = tables.run(tables.plan(seeds=1))
    assert len(tables.trained()) == 6
    assert by_id(one_seed)["warm/all"].figures[0].values == by_id(two_seeds)["warm/all"].figures[0].values[:1]
    # Other options or printed values make another table, with its own folder and log.
    part = tables.run(tables.plan(only=["warm"]))
    printed_table = tables.run(tables.plan({"paper": {"Cold": {"All": 9}}}))
    assert len({two_seeds.id, three_seeds.id, one_seed.id, part.id, printed_table.id}) == 5
    assert (len(tables.trained()), printed_table.outside) == (6, ["cold/all Acc"])
    assert tables.run(tables.plan()).id == two_seeds.id
    assert tables.run(tables.plan(seeds=2)) == tables.run(tables.plan(seeds=2))


def test_other_data_under_the_same_path_are_other_runs(tables, tmp_path):
    text_dataset(tmp_path / "data")
    tables.write("job", job_tree(tmp_path / "data"))
    first_report = tables.run(tables.plan())
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    text_dataset(tmp_path / "data", seed=1)
    second_report = tables.run(tables.plan())
    assert len(tables.trained()) == 8
    assert second_report.id != first_report.id
    assert not set(by_id(first_report)["cold/all"].runs) & set(by_id(second_report)["cold/all"].runs)


@pytest.mark.parametrize("signals", [1, 2])
def test_a_stopped_table_continues_at_its_checkpoint(tables, signals):
    def stop(_job, epoch):
        if len(tables.trained()) == 2 and epoch == 3:
            tables.formula.before = lambda _job, _epoch: None
            tables.request.set()
            if signals == 2:
                raise KeyboardInterrupt

    tables.formula.before = stop
    report = tables.run(tables.plan())
    assert (report.state, report.reason) == (State.STOPPED, "")
    assert (tables.states(), tables.states("tables")) == (["COMPLETE", "STOPPED"], ["STOPPED"])
    assert [tables.logs()[name]["end"] for name in (LABELS[1], "table")] == [["STOPPED", ""]] * 2
    assert [cell.figures[0].verdict for cell in report.cells] == ["missing"] * 2
    assert "Missing in all of All: not run." in (report.folder / "table.md").read_text()
    assert not (report.folder / "STOP").exists()
    epoch_count = len(tables.formula.trained)
    second_report = tables.run(tables.plan())
    assert (second_report.state, second_report.id) == (State.COMPLETE, report.id)
    assert tables.formula.trained[epoch_count] == (tables.trained()[1], 4 if signals == 1 else 3)
    assert tables.states() == ["COMPLETE"] * 4


def test_a_stop_when_all_is_there_changes_nothing(tables):
    tables.stop_when(lambda _job, epoch: len(tables.trained()) == 4 and epoch == 4)
    assert tables.run(tables.plan()).state is State.COMPLETE


def test_a_failure_has_its_reason_and_the_others_run(tables):
    tables.formula.fails = lambda job, epoch: job.train.seed == 0 and epoch == 2 and is_cold(job)
    report = tables.run(tables.plan())
    reason = "Diverged: the loss is not finite [step 20]"
    assert (report.state, report.reason) == (State.FAILED, "1 of 4 runs are missing")
    cold_cell, warm_cell = report.cells
    assert (cold_cell.reasons, cold_cell.runs[0], cold_cell.figures[0].verdict) == (
        (reason,),
        None,
        "missing",
    )
    assert (warm_cell.reasons, warm_cell.figures[0].verdict) == ((), "not judged")
    assert tables.states() == ["FAILED", "COMPLETE", "COMPLETE", "COMPLETE"]
    assert tables.logs()[LABELS[0]]["end"] == ["FAILED", reason]
    assert reason in (report.folder / "table.md").read_text()
    # The next command trains the failed run again, from the start.
    tables.formula.fails = lambda _job, _epoch: False
    second_report = tables.run(tables.plan())
    assert (second_report.state, second_report.id, second_report.cells[0].reasons) == (
        State.COMPLETE,
        report.id,
        (),
    )
    assert sorted(tables.states()) == ["COMPLETE"] * 4 + ["FAILED"]


def test_a_row_that_always_fails_stops_no_other_but_failures_in_a_row_do(tables):
    tables.formula.fails = lambda job, _epoch: is_cold(job)
    cells = by_id(tables.run(tables.plan(seeds=6)))
    assert (cells["warm/all"].figures[0].verdict, cells["cold/all"].runs) == ("not judged", (None,) * 6)
    tables.formula.fails = lambda _job, _epoch: True
    report = tables.run(tables.plan({"experiment": "other"}, seeds=4))
    assert report.state is State.FAILED
    assert report.reason.startswith("4 trainings failed in a row")
    assert tables.states()[-4:] == ["FAILED"] * 4
    assert not (report.folder / "STOP").exists()


@pytest.mark.parametrize("scale", [math.nan, math.inf])
def test_a_metric_that_is_no_number_is_missing(tables, scale):
    tables.formula.scale = lambda job: scale if job.train.seed == 0 and is_cold(job) else 1.0
    report = tables.run(tables.plan())
    assert (report.state, report.reason) == (State.FAILED, "no number for cold/all Acc")
    cold_cell = report.cells[0]
    assert cold_cell.reasons == ("test/accuracy is not a number with seed 0",)
    assert None not in cold_cell.runs
    assert cold_cell.figures[0].values[0] is None
    json.loads((report.folder / "table.json").read_text(), parse_constant=pytest.fail)
    epoch_count = len(tables.formula.trained)
    assert tables.run(tables.plan()).state is State.FAILED
    assert len(tables.formula.trained) == epoch_count


def test_a_damaged_run_is_missing_in_its_own_cells_alone(tables):
    report = tables.run(tables.plan())
    damaged_file = tables.home / "runs" / by_id(report)["cold/all"].runs[1] / RESULT
    damaged_file.write_text("{")
    second_report = tables.run(tables.plan())
    assert (second_report.state, second_report.missing) == (State.FAILED, ["cold/all Acc"])
    assert str(damaged_file) in second_report.cells[0].reasons[0]
    assert second_report.cells[1] == report.cells[1]
    damaged_file.unlink()  # a run without metrics is trained again
    assert tables.run(tables.plan()).state is State.COMPLETE


def silent(its, _tables):
    while task := its.next():
        its.begin(task.key)
        its.end(task.key, {})


def deadly(its, _tables):
    while task := its.next():
        its.begin(task.key)
        its.begin(task.key)  # a second process
        its.on_died(task.key, "its process died again and again")
        its.end(task.key, {})  # Tune reports both


def never_begun(its, tables):
    its.on_died(its.next().key, "its process died")
    tables.request.set()
    assert its.next() is None


def another_command_trains(its, tables):
    task = its.next()
    its.begin(task.key)
    with lock_file(tables.home / "runs" / task.key / ".lock") as is_locked:
        assert is_locked
        its.on_died(task.key, "another process is still training")
    while its.next():
        tables.request.set()


@pytest.mark.parametrize(
    ("executor", "state", "states", "reason"),
    [
        (silent, State.FAILED, ["STOPPED"] * 4, ""),
        (deadly, State.FAILED, ["FAILED"] * 4, "its process died again and again"),
        (never_begun, State.STOPPED, ["STOPPED"], ""),
        (another_command_trains, State.STOPPED, ["RUNNING"], "another command trains in "),
    ],
)
def test_trainings_whose_processes_end_without_a_result(tables, monkeypatch, executor, state, states, reason):
    monkeypatch.setattr(shared_runs, "PATIENCE", 0.0)
    monkeypatch.setattr(engine, "run_trainings", lambda callbacks, **_: executor(callbacks, tables))
    report = tables.run(tables.plan())
    assert (report.state, tables.states()[: len(states)]) == (state, states)
    assert "".join(report.cells[0].reasons).startswith(reason)


def no_cluster(its, **_):
    its.begin(its.next().key)
    raise RuntimeError("no cluster")


def second_signal(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("owner", "name", "crash", "states", "end"),
    [
        (engine, "run_trainings", no_cluster, ["STOPPED"], ["FAILED", "RuntimeError: no cluster"]),
        (table.CellResults, "plain_result", second_signal, ["COMPLETE"] * 4, ["STOPPED", ""]),
    ],
    ids=["executor", "second signal while metrics are read"],
)
def test_an_exception_ends_the_table_and_the_next_command_goes_on(
    tables, monkeypatch, owner, name, crash, states, end
):
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crash)
        with pytest.raises((RuntimeError, KeyboardInterrupt)):
            tables.run(tables.plan())
    assert (tables.states(), tables.states("tables")) == (states, end[:1])
    assert tables.logs()["table"]["end"] == end
    assert tables.run(tables.plan()).state is State.COMPLETE
    assert len(tables.trained()) == 4


def test_a_training_that_waits_for_a_process_is_not_another_commands(tables, monkeypatch):
    """Tests that another command neither closes a waiting training, which is RUNNING, nor continues it."""

    def beside(callbacks, **options):
        task = callbacks.next()
        record = RunFolder(tables.home / "runs" / task.key).record
        recover(tables.home)
        assert tables.states() == ["RUNNING"]
        assert RunFolders(tables.home).find_unfinished(record.job_hash, record.fingerprint) is None
        callbacks.begin(task.key)
        callbacks.end(task.key, {"ended": State.COMPLETE})
        in_process(callbacks, **options)

    monkeypatch.setattr(engine, "run_trainings", beside)
    tables.run(tables.plan())
    assert "its process was killed" not in json.dumps(tables.logs())


def test_a_second_command_and_a_share_that_fits_nowhere_leave_nothing(tables, monkeypatch):
    monkeypatch.setattr(command, "LOCK_PATIENCE", 0.0)
    with lock_file(tables.home / "tables" / ".table.lock") as is_locked:
        assert is_locked
        with pytest.raises(UserError, match="another command runs this table"):
            tables.run(tables.plan())
    with pytest.raises(UserError) as error:
        tables.run(tables.plan(cpus=64))
    assert error.value.key == "--cpus"
    assert not list(tables.home.glob("*/mlcl-*"))
    assert tables.run(tables.plan()).state is State.COMPLETE


def test_a_log_that_mlflow_refused_or_of_another_store_is_begun_anew(tables, monkeypatch):
    first_report = tables.run(tables.plan())
    logs = {path.name for path in (tables.home / "logs").iterdir()}
    for id in logs:
        Cursor(undeliverable="no").write(log_folder(tables.home, id))
    assert tables.run(tables.plan()).state is State.COMPLETE
    assert {path.name for path in (tables.home / "logs").iterdir()} - logs == {f"{first_report.id}-2"}
    tracker = SimpleNamespace(uri="elsewhere", hide_password=str, open_experiment=lambda *_, **__: None)
    monkeypatch.setattr(command, "Tracker", lambda _home: tracker)
    second_report = tables.run(tables.plan())
    assert (second_report.id, second_report.cells) == (first_report.id, first_report.cells)
    record = RunFolders(tables.home, "tables").find_named("table").record
    assert (record.log, record.tracking_uri) == (f"{first_report.id}-3", "elsewhere")
    assert len(tables.trained()) == 4


KNN = {"k": 7, "lambda": 0.75, "temperature": 0.5}
FREE = {f"evaluation.knn.{name}": value for name, value in KNN.items()}
SHOWN = {"Acc": "knn/test/accuracy", "F1": "knn/val/macro_f1", "Alone": "test/accuracy",
         "Seen": "test/macro_f1_predicted"}  # fmt: skip


def test_neighbours_of_a_row_are_those_of_a_run_with_that_setting(tables, monkeypatch):
    monkeypatch.setattr(trial, "run_experiment", run_experiment)
    monkeypatch.setattr(trial, "JobData", JobData)

    def run(rows, name="table"):
        change = {"train.epochs": 1, "evaluation.metrics": ["averages"]}
        tree = {"metrics": SHOWN, "seeds": 1, "rows": rows, "set": change}
        return tables.run(tables.plan(tree, name=name))

    both_rows = {"jobs": {}, "rows": {"set": FREE}}
    jobs_cell, rows_cell = run(both_rows).cells
    assert (len(tables.states()), jobs_cell.runs) == (1, rows_cell.runs)
    (own_cell,) = run({"own": {"set": {"evaluation.knn": KNN}}}, name="own").cells
    assert len(tables.states()) == 2
    values = [[figure.values[0] for figure in cell.figures] for cell in (rows_cell, own_cell, jobs_cell)]
    assert values[0] == pytest.approx(values[1], abs=1e-12)
    assert values[0][:2] != values[2][:2]
    assert values[0][2] == values[2][2]
    blocks, row_blocks = jobs_cell.trainings[0].blocks, rows_cell.trainings[0].blocks
    assert len(blocks["test/accuracy"]) == len(blocks["knn/test/accuracy"]) > 1
    # This metric was computed later, from stored predictions.
    assert len(blocks["test/macro_f1_predicted"]) == len(blocks["test/accuracy"])
    assert row_blocks == {
        name: block_values for name, block_values in blocks.items() if not name.startswith("knn/")
    }
    (tables.home / "runs" / jobs_cell.runs[0] / EMBEDDINGS).unlink()
    new_jobs_cell, new_rows_cell = run(both_rows).cells  # the run without embeddings is trained again
    assert len(tables.states()) == 3
    assert [cell.figures for cell in (new_jobs_cell, new_rows_cell)] == [
        cell.figures for cell in (jobs_cell, rows_cell)
    ]
    (tables.home / "runs" / new_jobs_cell.runs[0] / EMBEDDINGS).write_text("no embeddings")
    same_cell, new_rows_cell = run(both_rows).cells
    assert same_cell == new_jobs_cell
    assert "the run's embeddings cannot be read" in new_rows_cell.reasons[0]
    assert [figure.verdict for figure in new_rows_cell.figures] == ["missing"] * 4


def test_neighbours_of_a_cell_need_embeddings_that_an_earlier_table_may_have_left_out(tables):
    rows = {"jobs": {}, "rows": {"set": FREE}}
    tree = {"metrics": {"Acc": "knn/test/accuracy"}, "seeds": 1}
    with pytest.raises(UserError, match="key models: the neighbours of cell rows/all are computed"):
        plan_table(tables.plan({**tree, "rows": rows, "models": False}), tables.home)
    tables.run(tables.plan({**tree, "rows": {"jobs": {}}, "models": False}, name="before"))
    assert len(tables.trained()) == 1
    assert TableTrainings(tables.plan({**tree, "rows": {"jobs": {}}}), tables.home).missing_runs() == []
    trainings = plan_table(tables.plan({**tree, "rows": rows}), tables.home)["trainings"]
    assert (trainings["missing"], sum(kind["trainings"] for kind in trainings["kinds"])) == (1, 1)
    for _ in range(2):  # the second command finds the embeddings
        tables.run(tables.plan({**tree, "rows": rows}))
        assert len(tables.trained()) == 2
