"""Sweeps and tables of the release before, which had no formats, and of one to come."""

import json
from pathlib import Path

import pytest
from builders import text_dataset, tiny_job
from ledgers import events, rewrite
from reproduced import Tables
from sweeps import World

from mlcl.config import dump_job, job_hash, load_job
from mlcl.errors import UserError
from mlcl.service.engine.ledger import FORMAT, LEDGER, Ledger
from mlcl.service.engine.recovery import recover
from mlcl.service.runs.run_store import RunFolder, RunFolders
from mlcl.tracking import State, tracking_uri
from mlcl.training.job_data import JobData

RELEASE_0_1 = Path(__file__).parent / "release_0_1"
"""A sweep that release 0.1 wrote, killed in the third epoch of its second confirmation training."""
SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  evaluation.knn.k: {choice: [1, 3]}
search: {scheduler: asha, reduction_factor: 2, startup: 2}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with data under a relative path, which the old sweep's job has."""
    monkeypatch.chdir(tmp_path)
    text_dataset(Path("data"))
    return tmp_path


def old_sweep(home, job):
    """Its folder in a home, on this data, with the keys that jobs have got since, so with other hashes."""
    fingerprint = JobData.of(job, home).fingerprint
    record = json.loads((RELEASE_0_1 / "run.json").read_text())
    folder = home / "sweeps" / record["id"]
    folder.mkdir(parents=True)
    for file in RELEASE_0_1.iterdir():
        text = file.read_text().replace("FINGERPRINT", fingerprint).replace("URI", tracking_uri(home))
        (folder / file.name).write_text(text.replace(record["job_hash"], job_hash(job)))
    ledger = (folder / LEDGER).read_text()
    for line in map(json.loads, ledger.splitlines()):
        if "job" in line:
            ledger = ledger.replace(json.dumps(line["job"]), json.dumps(dump_job(load_job(line["job"]))))
        if line.get("group"):
            confirmed = job_hash(load_job(line["job"], {"train.seed": 0}))
            ledger = ledger.replace(line["group"], f"confirm-{confirmed[:12]}")
    (folder / LEDGER).write_text(ledger)
    return folder


def entries(ledger):
    return {key: {**vars(entry), "cost": None} for key, entry in ledger.entries.items()}


def test_a_sweep_of_release_0_1_is_read_and_gone_on_with(here, monkeypatch):
    whole = World(Path("whole"), monkeypatch)
    job = tiny_job(Path("data"), "evaluation.threshold=0.5", patience=None)  # as release 0.1 had it
    whole.run(whole.plan(job, SPACE, trials=3, seeds=1))
    world = World(Path("home"), monkeypatch)
    folder = old_sweep(world.home, job)
    before, written = Ledger(folder), (folder / LEDGER).read_text()
    assert [entry.state for entry in before.entries.values()].count(State.RUNNING) == 2
    assert before.spent("cpu") > 0
    report = world.run(world.plan(job, SPACE, trials=3, seeds=1))
    assert (report.state, report.folder) == (State.COMPLETE, folder)
    after = Ledger(folder)
    assert entries(after) == entries(whole.ledger)
    assert {key for key, _ in world.formula.trained} == {
        key for key, entry in before.entries.items() if entry.state is State.RUNNING
    }
    assert len(after.versions()) == 1
    assert "format" not in after.head
    assert (folder / LEDGER).read_text().startswith(written)


def test_a_table_of_release_0_1_has_no_ledger_and_is_gone_on_with(tiny, tmp_path, monkeypatch):
    tables = Tables(tmp_path / "home", monkeypatch, tiny)
    tables.stop_when(lambda _job, epoch: len(tables.trained()) == 2 and epoch == 3)
    first = tables.run(tables.plan())
    (first.folder / LEDGER).unlink()
    RunFolder(first.folder).set_state(State.STOPPED, "")
    done = len(tables.formula.trained)
    again = tables.run(tables.plan())
    assert (again.state, again.id) == (State.COMPLETE, first.id)
    assert tables.formula.trained[done] == (tables.trained()[1], 4)  # the epoch after its checkpoint
    assert tables.states() == ["COMPLETE"] * 4
    assert (Ledger(first.folder).head["format"], len(Ledger(first.folder).entries)) == (FORMAT, 3)


@pytest.fixture(params=["sweep", "table"])
def made(request, tiny, tmp_path, monkeypatch):
    """A finished sweep or table of this release, and its plan."""
    if request.param == "sweep":
        world = World(tmp_path / "home", monkeypatch)
        plan = world.plan(tiny_job(tiny), SPACE, trials=1)
    else:
        world = Tables(tmp_path / "home", monkeypatch, tiny)
        plan = world.plan(seeds=1)
    world.run(plan)
    return world, plan, request.param


def test_a_ledger_has_its_format(made):
    world, _, kind = made
    (path,) = world.home.glob(f"{kind}s/*/{LEDGER}")
    assert Ledger(path.parent).head["format"] == FORMAT


def test_a_ledger_of_a_later_release_is_refused_in_one_line_and_left_alone(made):
    world, plan, kind = made
    (path,) = world.home.glob(f"{kind}s/*/{LEDGER}")
    head, *others = events(world.home)
    rewrite(path, [head | {"format": FORMAT + 1}, *others])
    before, trained = path.read_text(), len(world.formula.trained)
    with pytest.raises(UserError, match=f"this {kind} was written by a later mlcl") as caught:
        world.run(plan)
    assert "install the mlcl that wrote it" in caught.value.line()
    assert "\n" not in caught.value.line()
    recover(world.home)
    assert (path.read_text(), len(world.formula.trained)) == (before, trained)
    assert [record.state for _, record in RunFolders(world.home, f"{kind}s").records()] == ["COMPLETE"]


def test_a_home_of_a_later_release_is_refused_before_anything_starts(made):
    world, plan, _ = made
    (world.home / "home.json").write_text('{"format": 99}')
    trained = len(world.formula.trained)
    with pytest.raises(UserError, match="this home was written by a later mlcl"):
        world.run(plan)
    assert len(world.formula.trained) == trained
