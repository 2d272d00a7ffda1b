"""`mlcl list`, `show` and `open`: what a home has, from its files alone."""

import json
import webbrowser
from types import SimpleNamespace

import optuna
import pytest
from builders import tiny_job
from ledgers import recorded
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from sweeps import World
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.cli.options import job_keys, local_names, metric_names
from mlcl.cli.output import results
from mlcl.cli.runs import trial_keys
from mlcl.errors import UserError
from mlcl.store import RunFolders
from mlcl.tracking import RunLog, State

SPACE = "space: {objective.heads.*.temperature: {log_float: [0.05, 1.0]}}\nsearch: {scheduler: none}"


def plain_run(home, id, state=State.COMPLETE, parent=None, score=0.25):
    params = {"evaluation.metric": "val/accuracy"}
    RunLog.start(home, id, uri="u", experiment="e", name=id, owner=id, params=params, tags={}, parent=parent)
    folder = RunFolders(home).new(id)
    recorded(folder, state)
    (folder.path / "result.json").write_text(json.dumps({"val/accuracy": score}))


@pytest.fixture
def home(tmp_path, tiny, monkeypatch):
    """A sweep, and after it a run that was killed; a run of a table's cell is no run of its own."""
    (tmp_path / "that's größer").mkdir()
    (tmp_path / "home").symlink_to("that's größer")
    world = World(tmp_path / "home", monkeypatch)
    world.run(world.plan(tiny_job(tiny), SPACE, trials=2, name="seek"))
    plain_run(world.home, "mlcl-99990101-000000-ab", State.RUNNING)
    plain_run(world.home, "mlcl-99980101-000000-cd", parent="a-table")
    return world.home


def mlcl(home, *words):
    answer = CliRunner().invoke(app, [*words, "--home", str(home)])
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return answer.stdout


def test_the_latest_first_with_state_and_best(home):
    listed = json.loads(mlcl(home, "list", "--json"))["runs"]
    assert [(its["kind"], its["state"]) for its in listed] == [("run", "KILLED"), ("sweep", "COMPLETE")]
    assert listed[0]["best"] == "val/accuracy 0.2500"
    assert listed[1]["best"].startswith("val/accuracy 0.")
    assert "seek" in mlcl(home, "list")


def test_the_study_of_a_sweep_is_copied_and_a_run_has_none(home, tmp_path):
    file = tmp_path / "study.log"
    assert "trial 0" in mlcl(home, "show", "seek", "--study", file)
    studies = optuna.get_all_study_summaries(JournalStorage(JournalFileBackend(str(file))))
    assert [study.n_trials for study in studies] == [2]
    for name, problem in (("seek", "is there already"), ("@last", "has no search")):
        with pytest.raises(UserError, match=f"--study.*{problem}"):
            mlcl(home, "show", name, "--study", file)


def test_one_is_shown_by_its_name_its_beginning_or_as_the_last(home):
    assert "trial 0" in mlcl(home, "show", "seek")
    assert "val/accuracy 0." in mlcl(home, "show", "se")
    assert "KILLED" in mlcl(home, "show", "@last")
    with pytest.raises(UserError, match="did you mean seek"):
        mlcl(home, "show", "seak")
    plain_run(home, "mlcl-99990101-000000-ac")
    with pytest.raises(UserError, match="begins several names"):
        mlcl(home, "show", "mlcl-9999")


def test_the_last_is_that_of_any_kind(home, monkeypatch):
    its = {"experiment": "e", "job_hash": "j", "fingerprint": "d", "log": "l", "uri": "u"}
    RunFolders(home).new("set-back").open(**its)
    assert "set-back" in mlcl(home, "show", "@last")
    RunFolders(home, "tables").new("table").open(**its, name="later")
    assert "later" in mlcl(home, "show", "@last")


def test_a_damaged_database_is_an_error_of_one_line(home):
    file = home / "home.db"
    file.write_bytes(file.read_bytes().replace(b"seek", b"sook"))
    for words in (["list", "--json"], ["show", "@last", "--json"]):
        with pytest.raises(UserError, match=r"home\.db: the database of this home is damaged"):
            mlcl(home, *words)


def test_a_narrow_terminal_and_a_sweep_without_results_end_no_command(home, monkeypatch):
    wide = mlcl(home, "show", "seek")
    monkeypatch.setattr(results, "_width", 20)
    assert "seek" in mlcl(home, "list")
    assert sorted("".join(mlcl(home, "show", "seek").split())) == sorted("".join(wide.split()))
    (document,) = home.glob("sweeps/*/sweep.json")
    document.unlink()
    assert "seek" in mlcl(home, "list")
    assert trial_keys(SimpleNamespace(params={"sweep": "seek"}), "") == []


def test_the_shell_completes_names(home, monkeypatch):
    monkeypatch.setenv("MLCL_HOME", str(home))
    assert local_names("s") == ["seek"]
    assert local_names("x") == []


def test_the_shell_completes_keys_and_metrics(home, monkeypatch, root):
    monkeypatch.setenv("MLCL_HOME", str(home))
    job = SimpleNamespace(params={"job": root / "jobs" / "icd10cm_features.yaml"})
    assert job_keys(job, "train.lr") == ["train.lr="]
    assert "objective.heads.section.temperature=" in job_keys(job, "objective.heads.section.")
    assert job_keys(SimpleNamespace(params={"job": home / "none.yaml"}), "") == []
    seek = SimpleNamespace(params={"sweep": "seek"})
    assert trial_keys(seek, "") == [f"objective.heads.{head}.temperature" for head in ("detail", "topic")]
    assert trial_keys(SimpleNamespace(params={"sweep": "none"}), "") == []
    assert metric_names("test/micro_f") == ["test/micro_f1"]


def test_the_report_is_opened_where_there_is_one(home, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda page: opened.append(page) or True)
    with pytest.raises(UserError, match="allowed: mlcl report seek"):
        mlcl(home, "open", "seek")
    (sweep,) = (home / "sweeps").glob("*/")
    page = home / "reports" / sweep.name / "report.html"
    page.parent.mkdir(parents=True)
    page.touch()
    assert mlcl(home, "open", "seek").strip() == page.resolve().as_uri()
    assert opened == [page.resolve().as_uri()]
    with pytest.raises(UserError, match="no MLflow server runs here"):
        mlcl(home, "open", "seek", "--dashboard")
