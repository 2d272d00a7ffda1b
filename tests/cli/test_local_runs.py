"""Tests `mlcl list`, `show`, `open` and `effect`, which read the files of a home alone."""

import webbrowser
from types import SimpleNamespace

import optuna
import pytest
import yaml
from builders import job_tree, tiny_job
from cli.conftest import HEADS
from commands import mlcl
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from mlcl.cli.options import job_keys, local_names, metric_names
from mlcl.cli.output import results
from mlcl.cli.runs import trial_keys
from mlcl.service.run_job import run_job
from mlcl.store import RunFolders
from mlcl.tracking.cursor import undelivered_logs


def test_the_latest_first_with_state_and_best(lab):
    runs = mlcl("list", "--json", "--home", lab.home).json["runs"]
    states = [(run["kind"], run["state"]) for run in runs]
    assert states == [("run", "KILLED"), ("sweep", "COMPLETE"), ("run", "COMPLETE")]
    assert runs[0]["best"] == "val/accuracy 0.2500"
    assert runs[1]["best"].startswith("val/accuracy 0.")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("list", "seek"), ("show seek", "trial "), ("show se", "val/accuracy 0."), ("show @last", "KILLED"),
        ("effect seek detail.temperature", f"(max) over {HEADS}.detail.temperature; 40 complete"),
        ("effect seek detail.temperature", f"best near {HEADS}.detail.temperature 0."),
    ],
)  # fmt: skip
def test_people_get_a_table(lab, words, part):
    answer = mlcl(*words.split(), "--home", lab.home)
    assert (answer.status, part in answer.out) == (0, True), answer


def test_a_run_is_shown_with_its_metrics(lab):
    assert "knn_best/accuracy" in mlcl("show", lab.report.id, "--home", lab.home).out
    metrics = mlcl("show", lab.report.id, "--home", lab.home, "--json").json["metrics"]
    assert 0 < metrics["knn_best/test/accuracy"] <= 1


def test_the_study_of_a_sweep_is_copied(lab, tmp_path):
    file = tmp_path / "study.log"
    answer = mlcl("show", "seek", "--study", file, "--home", lab.home)
    assert (answer.status, f"written: {file}" in answer.err) == (0, True)
    studies = optuna.get_all_study_summaries(JournalStorage(JournalFileBackend(str(file))))
    assert [study.n_trials for study in studies] == [40]


def test_the_last_is_that_of_any_kind(home):
    fields = {"experiment": "e", "job_hash": "j", "fingerprint": "d", "log": "l", "uri": "u"}
    RunFolders(home).new_folder("set-back").open(**fields)
    assert "set-back" in mlcl("show", "@last", "--home", home).out
    RunFolders(home, "tables").new_folder("table").open(**fields, name="later")
    assert "later" in mlcl("show", "@last", "--home", home).out


@pytest.mark.parametrize("words", ["list --json", "show @last --json"])
def test_a_damaged_database_is_an_error_of_one_line(home, words):
    file = home / "home.db"
    file.write_bytes(file.read_bytes().replace(b"seek", b"sook"))
    answer = mlcl(*words.split(), "--home", home)
    assert (answer.status, "home.db: the database of this home is damaged" in answer.err) == (2, True)


@pytest.mark.parametrize(
    ("kind", "damage", "said"),
    [
        ("sweep", None, "sweep.json: has no results yet"), ("sweep", "", "sweep.json: is damaged"),
        ("sweep", "[]", "sweep.json: is damaged"), ("result", "", "result.json: is damaged"),
        ("result", "[]", "result.json: is damaged"),
    ],
)  # fmt: skip
def test_a_file_of_results_that_is_missing_or_damaged_is_named(lab, home, monkeypatch, kind, damage, said):
    monkeypatch.setenv("MLCL_HOME", str(home))
    name = "seek" if kind == "sweep" else lab.report.id
    (file,) = home.glob("sweeps/*/sweep.json" if kind == "sweep" else f"runs/{name}/result.json")
    file.unlink() if damage is None else file.write_text(damage)
    assert name in mlcl("list").out
    answer = mlcl("show", name)
    assert (answer.status, said in answer.err, "state    COMPLETE" in answer.out) == (2, True, True), answer
    assert bool(trial_keys(SimpleNamespace(params={"sweep": "seek"}), "")) == (kind != "sweep")


def test_a_narrow_terminal_ends_no_command(lab, monkeypatch):
    wide_text = mlcl("show", "seek", "--home", lab.home).out
    monkeypatch.setattr(results, "_width", 20)
    assert "seek" in mlcl("list", "--home", lab.home).out
    narrow_text = mlcl("show", "seek", "--home", lab.home).out
    assert sorted("".join(narrow_text.split())) == sorted("".join(wide_text.split()))


def test_the_shell_completes_names_keys_and_metrics(lab, monkeypatch, root):
    monkeypatch.setenv("MLCL_HOME", str(lab.home))
    assert (local_names("s"), local_names("x")) == (["seek"], [])
    job = SimpleNamespace(params={"job": root / "jobs" / "icd10cm_features.yaml"})
    assert job_keys(job, "train.lr") == ["train.lr="]
    assert f"{HEADS}.section.temperature=" in job_keys(job, f"{HEADS}.section.")
    assert job_keys(SimpleNamespace(params={"job": lab.home / "none.yaml"}), "") == []
    seek_context, missing_context = (SimpleNamespace(params={"sweep": name}) for name in ("seek", "none"))
    assert trial_keys(seek_context, "") == [f"{HEADS}.{head}.temperature" for head in ("detail", "topic")]
    assert (trial_keys(missing_context, ""), metric_names("test/micro_f")) == ([], ["test/micro_f1"])


def test_completion_runs_no_plugin_and_is_silent_in_a_damaged_home(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("raise AssertionError")
    tree = job_tree(tmp_path) | {"plugins": ["mine.py"]}
    tree["objective"]["heads"] = {"tags": {"loss": "mine", "labels": "tags"}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(tree))
    context = SimpleNamespace(params={"job": tmp_path / "job.yaml"})
    assert job_keys(context, "objective.heads.tags.lo") == ["objective.heads.tags.loss="]
    monkeypatch.setenv("MLCL_HOME", str(tmp_path))
    (tmp_path / "home.db").write_text("damaged" * 1000)
    assert local_names("") == []


def test_the_report_is_opened_where_there_is_one(home, monkeypatch):
    pages = []
    monkeypatch.setattr(webbrowser, "open", lambda page: pages.append(page) or True)
    (sweep,) = (path for path in (home / "sweeps").iterdir() if path.is_dir())
    page = home / "reports" / sweep.name / "report.html"
    page.parent.mkdir(parents=True)
    page.touch()
    assert mlcl("open", "seek", "--home", home).out.strip() == page.resolve().as_uri()
    assert pages == [page.resolve().as_uri()]


def effect(lab, *words):
    result = mlcl("effect", "seek", "detail.temperature", *words, "--json", "--home", lab.home).json
    return result, max(result["curve"], key=lambda row: row["expected"])


def test_the_effect_of_a_key_is_a_curve_with_its_best_value(lab):
    result, best = effect(lab)
    assert (result["key"], result["trials"], result["mode"]) == (f"{HEADS}.detail.temperature", 40, "max")
    assert best["value"] == pytest.approx(0.2, rel=0.4)
    assert result["curve"][0]["expected"] < best["expected"] > result["curve"][-1]["expected"]
    (near_result, best), (_, far_best) = (
        effect(lab, "--at", f"topic.temperature={value}") for value in (0.2, 0.9)
    )
    assert best["expected"] > far_best["expected"] + 0.2
    assert near_result["at"] == {f"{HEADS}.topic.temperature": 0.2}


@pytest.mark.parametrize("value", ["true", "on", "warm", "[1]", ".inf", "-.inf", ".nan"])
def test_a_key_is_held_at_a_number(lab, value):
    key = "topic.temperature"
    answer = mlcl("effect", "seek", "detail.temperature", "--at", f"{key}={value}", "--home", lab.home)
    assert (answer.status, "--at: not a number; found: topic.temperature=" in answer.err) == (2, True), answer


def test_a_key_whose_trials_span_decades_is_held_above_0(lab):
    answer = mlcl("effect", "seek", "detail.temperature", "--at", "topic.temperature=0", "--home", lab.home)
    message = (
        "--at: the scale of this key is logarithmic; found: objective.heads.topic.temperature=0; allowed"
    )
    assert (answer.status, message in unwrapped(answer)) == (2, True), answer


def test_a_held_value_beyond_the_trials_is_told_and_the_key_of_the_curve_is_not_held(lab):
    command = ("effect", "seek", "detail.temperature", "--home", lab.home, "--at")
    beyond_answer, near_answer = (mlcl(*command, f"topic.temperature={value}") for value in (50, 0.2))
    assert (
        beyond_answer.status,
        "none at 50" in unwrapped(beyond_answer),
        "extrapolated" in unwrapped(near_answer),
    ) == (
        0,
        True,
        False,
    )
    answer = mlcl(*command, "detail.temperature=0.2")
    assert (answer.status, "--at: is the key of the curve" in answer.err) == (2, True), answer


def unwrapped(answer):
    return " ".join((answer.out + answer.err).split())


def test_a_home_that_lost_its_database_is_told_from_an_empty_one(tmp_path):
    assert "nothing was run" in mlcl("list", "--home", tmp_path).err
    (tmp_path / "runs" / "mlcl-20260101-000000-abcdef").mkdir(parents=True)
    answer = mlcl("list", "--home", tmp_path)
    assert (answer.status, "the database of this home is missing" in answer.err) == (2, True), answer


def test_imported_runs_are_in_mlflow(folder, tiny):
    report = run_job(tiny_job(tiny, epochs=1), home=folder / "first", listener=lambda _: None)
    answer = mlcl("import", "first", "--home", "second", "--json")
    assert ([run["id"] for run in answer.json["copied"]], answer.json["undelivered"]) == ([report.id], 0)
    assert undelivered_logs(folder / "second") == []
    assert mlcl("export", report.id, "--to", "model", "--home", "second").status == 0
