"""Tests that a table takes over trained parts, also those of another home, and writes cells as files."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ledgers import recorded
from reproduced import TABLE, TUNE, TUNED, content

from mlcl.errors import UserError
from mlcl.files import lock_file
from mlcl.service import import_home as importing
from mlcl.service.engine.ledger import Ledger
from mlcl.service.import_home import import_home
from mlcl.service.tables import origin
from mlcl.service.tables.cost import plan_table
from mlcl.service.tables.origin import without_empty
from mlcl.service.tables.table_log import write_cells
from mlcl.service.tables.trainings import TableTrainings
from mlcl.store import BACKUP, DATABASE, Database, RunFolder, RunFolders, State, home_records
from mlcl.store.database import Transaction
from mlcl.tracking import RunLog
from mlcl.tracking.names import Tag
from mlcl.tracking.provenance import Provenance

FEWER = {"Few": 24, "Half": 48}
WHOLE = {
    "rows": {"Cold": {"tune": False, **TABLE["rows"]["Cold"]}, "Warm": {},
             "Mild": {"set": {"train.lr": 0.02}}},
    "columns": {"All": {}, **{name: {"set": {"data.subset": {"n": n}}} for name, n in FEWER.items()}},
    "tune": TUNE,
    "ranks": {"rope": 0.01},
}  # fmt: skip
"""A table of nine cells on three data sets, six of them tuned."""
ROWS = ("cold", "warm", "mild")


def part(tables, *only, tree=WHOLE):
    return tables.run(tables.plan(tree, only=only))


def test_the_whole_trains_nothing_that_its_parts_have_trained(world):
    whole, home = part(world("whole")), world("home")
    part(home, "mild/all")
    part(home, "warm", "cold/few")
    trained_keys = home.trained()
    trainings = plan_table(home.plan(WHOLE), home.home)["trainings"]
    left_counts = {id: counts["left"] for id, counts in trainings["tuned"].items()}
    assert left_counts == {f"{row}/{column}": 6 * (row == "mild" and column != "all")
                    for row in ROWS[1:] for column in ("all", "few", "half")}  # fmt: skip
    assert trainings["missing"] == 2 * 6 + 2 * 2
    # The command is stopped in one of its own searches and then repeated.
    home.stop_when(lambda job, epoch: job.train.seed == 0 and epoch == 1 and bool(job.objective.heads))
    assert part(home).state is State.STOPPED
    report = part(home)
    assert content(report) == content(whole)
    assert len(home.trained()) - len(trained_keys) == trainings["missing"]


def test_a_new_row_is_trained_alone(world):
    home = world("home")
    first_report = part(
        home, tree={**WHOLE, "rows": {name: WHOLE["rows"][name] for name in ("Cold", "Warm")}}
    )
    trained_keys = home.trained()
    second_report = part(home)
    assert second_report.id != first_report.id
    assert len(home.trained()) - len(trained_keys) == 3 * 6
    assert content(second_report) == content(part(world("whole")))


@pytest.mark.parametrize("change", [{"trials": 3}, {"trials": 5}, {"seeds": 3}, {"sampler": "random"}])
def test_another_search_is_made_anew(world, change):
    home = world("home")
    part(home, "warm/all")
    report = part(home, "warm/all", "cold/all", tree={**WHOLE, "tune": {**TUNE, **change}})
    expected, ledger = {"trials": 4, "seeds": 2, **change}, Ledger(report.folder)
    assert len(ledger.trials(scope="warm_all")) == expected["trials"]
    assert len([entry for entry in ledger.entries.values() if entry.confirmation]) == expected["seeds"]


def test_a_search_with_a_failed_seed_is_made_anew(world):
    home = world("home")
    home.formula.fails = lambda job, _epoch: job.train.seed == 2
    assert part(home, "warm/all").state is State.FAILED
    home.formula.fails = lambda _job, _epoch: False
    assert part(home, "warm").state is State.COMPLETE
    assert Ledger(part(home, "warm").folder).searches == ["warm_all", "warm_few", "warm_half"]
    assert (
        plan_table(home.plan(WHOLE, only=("*/all",)), home.home)["trainings"]["tuned"]["warm/all"]["left"]
        == 0
    )
    assert part(home, "*/all").state is State.COMPLETE


def test_the_figures_of_cells_are_files(world, tmp_path):
    home = world("home")
    report, folder = part(home), tmp_path / "figures"
    files = write_cells(report, folder, home.plan())
    assert sorted(str(file.relative_to(folder)) for file in files) == sorted(
        f"{row}/{column}.json" for row in ROWS for column in ("all", "few", "half")
    )
    tree = json.loads((folder / "warm" / "few.json").read_text())
    cell = report.cell("Warm", "Few")
    assert (tree["table"], tree["row"], tree["column"]) == ("table", "Warm", "Few")
    assert tree["settings"] == dict(cell.settings)
    assert tuple(tree["figures"][0]["values"]) == cell.figures[0].values
    assert tree["higher"] == {"Acc": True}
    assert (tree["origin"]["fingerprint"], tree["origin"]["data"]) == (cell.origin.fingerprint, "tiny")
    assert tree["search"]["trials"] == dict(cell.search.trials)
    assert {"params", "trainings"}.isdisjoint(tree)
    verdict_texts = {json.dumps(verdict.as_dict()) for _, verdict in report.verdicts}
    cell_verdicts = [verdict for file in files for verdict in json.loads(file.read_text())["verdicts"]]
    assert {
        json.dumps({key: verdict[key] for key in verdict if key != "cells"}) for verdict in cell_verdicts
    } == verdict_texts


CHANGED, COMMITTED = ({Tag.COMMIT: "1a2b3c", Tag.DIRTY: dirty} for dirty in ("true", "false"))


@pytest.mark.parametrize(("tags", "text"), [(CHANGED, "uncommitted changes at 1a2b3c"), ({}, "no git")])
def test_a_clean_table_trains_from_committed_code_alone(world, monkeypatch, tags, text):
    home = world("home")
    monkeypatch.setattr(origin, "provenance", lambda ignored_folder: Provenance(tags, ""))
    with pytest.raises(UserError, match=text) as error:
        home.run(home.plan({"clean": True}))
    assert (error.value.key, home.trained()) == ("clean", [])
    assert not list(home.home.glob("tables/mlcl-*"))


@pytest.mark.parametrize("commit", ["", "1a2b3c4d5e6f+", "1a2b3c4d5e6f, 9f8e7d6c5b4a+", "1a2b3c4d5e6f, none"])
def test_figures_of_a_clean_table_are_of_committed_code(world, monkeypatch, tmp_path, commit):
    home = world("home")
    monkeypatch.setattr(origin, "provenance", lambda ignored_folder: Provenance(COMMITTED, ""))
    report = home.run(plan := home.plan({"clean": True}))
    assert TableTrainings(plan, home.home).identity == TableTrainings(home.plan(), home.home).identity

    def of(commit):
        cells = [replace(cell, origin=replace(cell.origin, commit=commit)) for cell in report.cells]
        return replace(report, cells=tuple(cells))

    assert len(write_cells(of("1a2b3c4d5e6f, 9f8e7d6c5b4a"), tmp_path / "figures", plan)) == 2
    with pytest.raises(UserError, match="committed code alone"):
        write_cells(of(commit), tmp_path / "others", plan)
    assert not (tmp_path / "others").exists()


def test_an_origin_says_that_one_of_its_trainings_has_no_commit(world):
    cell, info = world("home").plan().cells[0], SimpleNamespace(name="tiny", fingerprint="d")
    cell_origin = origin.cell_origin(cell, ("train.seed",), info, [COMMITTED, {}])
    assert cell_origin.commit == "1a2b3c, none"


def test_cells_that_lack_a_seed_are_not_written(world, tmp_path):
    home = world("home")
    home.formula.fails = lambda job, _epoch: job.train.seed == 1
    report = home.run(home.plan())
    assert report.missing == ["cold/all Acc", "warm/all Acc"]
    assert write_cells(report, tmp_path / "figures", home.plan()) == []
    assert not (tmp_path / "figures").exists()


def test_a_key_that_a_later_mlcl_adds_without_a_value_is_no_other_job():
    assert without_empty({"a": None, "b": {"c": None, "d": 0}, "e": [], "f": False, "g": {}}) == {
        "b": {"d": 0},
        "f": False,
    }


def said(home):
    """Returns the contents of a home's database in a fixed order, since the order of imports varies."""
    records = [record for _, record in home_records(home)]
    events = {record.id: [event for event, _ in Database(home).events(record.number)] for record in records}
    return sorted((replace(record, number=0) for record in records), key=repr), events


def test_parts_of_two_homes_are_the_unbroken_table_and_nothing_is_trained(world):
    cold_cells, warm_cells = ("cold/all", "cold/few"), ("warm/all", "warm/few")
    unbroken_home, target, first, second = (world(name) for name in ("whole", "here", "first", "second"))
    unbroken_report = part(unbroken_home, *cold_cells, *warm_cells)
    part(first, *cold_cells)
    part(second, *warm_cells)
    for source in (first, second):
        assert import_home(source.home, target.home)
    trained_epochs = list(second.formula.trained)
    report = part(target, *cold_cells, *warm_cells)
    assert content(report) == content(unbroken_report)
    assert second.formula.trained == trained_epochs  # the formula of the last home made records all trainings


def test_what_is_here_is_not_copied_again_and_nothing_changes(world):
    target, source = world("here"), world("first")
    part(source, "cold/all", "cold/few")
    records = import_home(source.home, target.home)
    assert [record.kind for record in records] == ["tables"] + ["runs"] * 4
    before = said(target.home)
    assert import_home(source.home, target.home) == []
    assert said(target.home) == before == said(source.home)
    table = target.home / "tables" / records[0].id
    assert Ledger(table).entries.keys() == Ledger(source.home / "tables" / records[0].id).entries.keys()


def test_an_imported_sweep_with_the_name_of_another_one_is_said(tmp_path):
    def sweep(home, state):
        return recorded(RunFolders(tmp_path / home, "sweeps").new_folder(), state, name="s").path.name

    their_id, our_id, notes = sweep("theirs", State.COMPLETE), sweep("ours", State.STOPPED), []
    import_home(tmp_path / "theirs", tmp_path / "ours", notes.append)
    assert notes == [f"sweep s: its name now means the copy; yours is {our_id}"]
    assert RunFolders(tmp_path / "ours", "sweeps").find_named("s").path.name == their_id
    (tmp_path / "ours" / DATABASE).write_bytes((tmp_path / "ours" / BACKUP).read_bytes())
    assert RunFolders(tmp_path / "ours", "sweeps").find_named("s").path.name == their_id


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_that_was_completed_in_a_copy_of_the_home_is_copied_back(tmp_path, changed):
    our_home, their_home, notes = tmp_path / "ours", tmp_path / "theirs", []
    run = recorded(RunFolders(our_home).new_folder(), State.STOPPED)
    id = run.path.name
    log_options = {"uri": "uri", "experiment": "exp", "name": id, "owner": id, "params": {}, "tags": {}}
    RunLog.start(our_home, id, **log_options).set_state(State.STOPPED)
    shutil.copytree(our_home, their_home)
    RunLog.attach(their_home, id).set_state(State.COMPLETE)
    their_run = RunFolder(their_home / "runs" / id)
    (their_run.path / "result.json").write_text("{}")
    their_run.set_state(State.COMPLETE)
    if changed:
        RunLog.attach(our_home, id).set_state(State.RUNNING)
    records = import_home(their_home, our_home, notes.append)
    assert [record.id for record in records] == ([] if changed else [id])
    assert notes == ([f"run {id} was changed in both homes: not copied"] if changed else [])
    assert run.record.state is (State.STOPPED if changed else State.COMPLETE)
    assert (run.path / "result.json").exists() is not changed
    assert RunLog.attach(our_home, id).state is (State.RUNNING if changed else State.COMPLETE)
    assert changed or import_home(their_home, our_home) == []


def test_what_has_grown_since_is_copied_again_unless_it_changed_in_both_homes(world):
    (target, source), notes = (world("here"), world("first")), []

    def run(home, trials):
        return home.run(home.plan({**TUNED, "tune": {**TUNE, "trials": trials}}))

    table = run(source, 4)
    import_home(source.home, target.home)
    grown_table = run(source, 6)
    (copied_record,) = import_home(source.home, target.home)
    assert (copied_record.kind, copied_record.id, grown_table.id) == ("tables", table.id, table.id)
    assert said(target.home) == said(source.home)
    for path in (f"tables/{table.id}/table.json", f"logs/{table.id}/log.jsonl"):
        assert (target.home / path).read_bytes() == (source.home / path).read_bytes()
    assert import_home(source.home, target.home) == []
    run(source, 7)
    assert [record.id for record in import_home(source.home, target.home)] == [table.id]
    import_home(target.home, source.home)
    training_count = len(source.trained())
    target.formula = source.formula
    run(target, 7)
    assert len(source.trained()) == training_count
    assert import_home(source.home, target.home, notes.append) == []
    assert notes == []
    run(source, 8)
    assert import_home(source.home, target.home, notes.append) == []
    assert notes == ["table table was changed in both homes: not copied"]


def test_an_import_of_what_has_grown_that_was_killed_is_gone_on_with(world, monkeypatch):
    target, source = world("here"), world("first")
    source.run(source.plan(TUNED))
    import_home(source.home, target.home)
    source.run(source.plan({**TUNED, "tune": {**TUNE, "trials": 6}}))
    change = Transaction.change_run
    monkeypatch.setattr(Transaction, "change_run", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        import_home(source.home, target.home)
    monkeypatch.setattr(Transaction, "change_run", change)
    assert len(import_home(source.home, target.home)) == 1
    assert said(target.home) == said(source.home)


def test_what_is_not_complete_stays_there(world):
    target, source = world("here"), world("first")
    source.stop_when(lambda job, epoch: job.train.seed == 1 and epoch == 1)
    assert part(source, "cold/all").state is State.STOPPED
    assert {record.state for record in import_home(source.home, target.home)} == {State.COMPLETE}
    training_count = len(source.trained())
    assert part(target, "cold/all").state is State.COMPLETE
    assert len(source.trained()) == training_count + 1


def test_the_log_of_a_table_that_was_stopped_at_the_first_import_is_renewed(world):
    target, source = world("here"), world("first")
    source.stop_when(lambda job, epoch: job.train.seed == 1 and epoch == 1)
    assert part(source, "cold/all").state is State.STOPPED
    assert "tables" not in {record.kind for record in import_home(source.home, target.home)}
    table = part(source, "cold/all")
    assert import_home(source.home, target.home)
    log, copy = (home.home / "logs" / table.id / "log.jsonl" for home in (source, target))
    assert copy.read_text() == log.read_text()


def test_an_import_that_was_killed_is_gone_on_with(world, monkeypatch):
    target, source = world("here"), world("first")
    part(source, "warm/all")
    copy, calls = importing.shutil.copytree, []

    def dying(*args, **kwargs):
        calls.append(args)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return copy(*args, **kwargs)

    monkeypatch.setattr(importing.shutil, "copytree", dying)
    with pytest.raises(KeyboardInterrupt):
        import_home(source.home, target.home)
    import_home(source.home, target.home)
    assert said(target.home) == said(source.home)
    assert not list(target.home.rglob("*.partial"))


def test_what_a_killed_import_left_is_removed_by_the_next_and_copied_by_none(world):
    target, source = world("here"), world("first")
    part(source, "cold/all")
    (log, *_) = (source.home / "logs").iterdir()
    for home in (target.home, source.home):
        shutil.copytree(log, home / "logs" / f".{log.name}.ab.partial")
        (home / "runs" / ".mlcl-1.ab.partial").mkdir(parents=True)
    with lock_file(target.home / importing.IMPORTING), pytest.raises(UserError, match="another import"):
        import_home(source.home, target.home)
    assert import_home(source.home, target.home)
    assert not list(target.home.rglob("*.partial"))


def test_a_home_that_is_none_this_one_or_damaged_is_refused(world, tmp_path):
    home = world("here")
    part(home, "cold/all")
    for source in (home.home, tmp_path / "nothing", tmp_path):
        with pytest.raises(UserError, match="no home to import from"):
            import_home(source, home.home)
    file = Database(home.home).file
    file.write_bytes(file.read_bytes().replace(b"COMPLETE", b"COMPLETF"))
    with pytest.raises(UserError, match="damaged"):
        import_home(home.home, tmp_path / "new")
    assert not (tmp_path / "new").exists()
