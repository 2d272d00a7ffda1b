"""`mlcl sweep` around the sweep itself: what it asks for, where it prints what, how it exits."""

import json
import sys
from types import SimpleNamespace

import pytest
import yaml
from builders import job_tree, text_dataset
from sweep_reports import report, trained
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.errors import UserError
from mlcl.service.engine.budget import parse_budget
from mlcl.service.engine.packing import Resources
from mlcl.service.engine.progress import ProgressEvent
from mlcl.tracking import State

SPACE = {"space": {"objective.heads.*.temperature": {"log_float": [0.05, 1.0]}}}


class Sweeps:
    """`mlcl sweep` in a folder with a job and a space; `plan` is what the sweep was then asked to do."""

    def __init__(self, folder):
        self.folder, self.plan, self.report = folder, None, report()
        (folder / "job.yaml").write_text(yaml.safe_dump(job_tree(folder / "data")))
        (folder / "space.yaml").write_text(yaml.safe_dump(SPACE))

    def run_sweep(self, plan, *, home, watch, strict_code):
        self.plan = plan
        watch(ProgressEvent("note", "this goes to standard error"))
        return self.report

    def __call__(self, *arguments):
        files = [str(self.folder / name) for name in ("job.yaml", "space.yaml")]
        command = ["sweep", *files, *map(str, arguments), "--home", str(self.folder / "outputs")]
        return CliRunner().invoke(app, command)


@pytest.fixture
def sweeps(tmp_path, monkeypatch):
    """The command line alone: no Ray, no store."""
    made = Sweeps(tmp_path)
    monkeypatch.setitem(sys.modules, "mlcl.service.search.sweep", SimpleNamespace(run_sweep=made.run_sweep))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return made


def test_what_was_asked_reaches_the_sweep(sweeps):
    base = sweeps.folder / "base.yaml"
    base.write_text((sweeps.folder / "job.yaml").read_text())
    asked = ("--trials", 4, "--seeds", 3, "--confirm", 2, "--baseline", base, "--budget", "2h", "--fresh")
    override = ("train.epochs=5", "objective.heads.topic.temperature=0.75")
    sweeps(*override, *asked, "--warm-start", "older", "--cpus", 2, "--gpus", 0.5, "--no-baselines")
    plan = sweeps.plan
    assert (plan.trials, plan.seeds, plan.confirm, plan.fresh) == (4, 3, 2, True)
    assert (plan.name, plan.warm_start) == ("job-space", "older")
    assert plan.resources == Resources(2.0, 0.5, None, parse_budget("2h"))
    ((name, baseline),) = plan.baselines
    # What is trained with is shared; what is compared is not.
    assert (name, baseline.train.epochs, plan.job.train.epochs) == ("base", 5, 5)
    assert plan.job.objective.heads["topic"].temperature == 0.75
    assert baseline.objective.heads["topic"].temperature != 0.75


def test_baselines_that_fit_are_confirmed_beside_those_that_are_named(sweeps):
    text_dataset(sweeps.folder / "data")
    base = sweeps.folder / "majority.yaml"
    base.write_text((sweeps.folder / "job.yaml").read_text())
    sweeps("--seeds", 2, "--baseline", base)
    named = [(name, job.baseline) for name, job in sweeps.plan.baselines]
    fitted = ["tfidf_knn", "tfidf_logreg", "tfidf_logreg_balanced", "tfidf_svm"]
    assert named == [("majority", None), *((name, name) for name in fitted)]
    sweeps("--seeds", 0)
    assert sweeps.plan.baselines == []


@pytest.mark.parametrize(
    ("state", "status", "hint"),
    [
        (State.COMPLETE, 0, "the same command with --trials 32 grows job-space"),
        (State.STOPPED, 130, "stopped; the same command goes on with job-space"),
        (State.BUDGET, 4, "0 left; the same command with --budget MORE goes on with job-space"),
        (State.FAILED, 3, "failed: 0 left"),
    ],
)
def test_a_state_is_an_exit_status_and_a_word_on_how_to_go_on(sweeps, state, status, hint):
    sweeps.report = report(state=state, reason="" if state is State.STOPPED else "0 left")
    answer = sweeps()
    assert answer.exit_code == status
    assert hint in answer.stderr
    assert hint not in answer.stdout


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        (State.COMPLETE, "mlcl resume lab-7 --trials 32 grows job-space"),
        (State.STOPPED, "stopped; mlcl resume lab-7 goes on with job-space"),
        (State.BUDGET, "0 left; mlcl resume lab-7 --budget MORE goes on with job-space"),
    ],
)
def test_a_submitted_sweep_says_how_its_job_goes_on(sweeps, state, hint, monkeypatch):
    monkeypatch.setenv("MLCL_JOB", "lab-7")
    sweeps.report = report(state=state, reason="0 left")
    assert hint in sweeps().stderr


def test_results_go_to_standard_output_and_progress_does_not(sweeps):
    sweeps.report = report(registered="models:/tiny@best (version 1)", spent="1.5 cpu-h", run_id="abc")
    answer = sweeps()
    for expected in (
        "2 COMPLETE, 1 FAILED, 1 PRUNED",
        "trial 3 FAILED: the loss is not finite [step 3]",
        "best model: models:/tiny@best (version 1)",
        "spent: 1.5 cpu-h",
        "mlcl report job-space; dashboard: mlflow ui",
    ):
        assert expected in answer.stdout
    assert "this goes to standard error" in answer.stderr
    assert "this goes to standard error" not in answer.stdout


def test_logs_that_wait_are_told(sweeps):
    sweeps.report = report(undelivered=3)
    answer = sweeps()
    logs = sweeps.folder / "outputs" / "logs"
    assert f"MLflow did not answer: 3 logs are kept in {logs}" in answer.stderr


def test_json_is_one_document_and_json_lines(sweeps):
    sweeps.report = report(trials=(trained(0, score=0.5),))
    answer = sweeps("--json")
    tree = json.loads(answer.stdout)
    assert (tree["id"], tree["state"], tree["best"]) == ("mlcl-1", "COMPLETE", "trial 0")
    assert [json.loads(line)["kind"] for line in answer.stderr.splitlines()] == ["note"]


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("--name", "a b"), "--name"),
        (("--name", "../up"), "--name"),
        (("--budget", "soon"), "--budget"),
        (("--baseline", "a/same.yaml", "--baseline", "b/same.yaml"), "--baseline"),
    ],
)
def test_bad_input_ends_before_the_sweep(sweeps, arguments, key):
    answer = sweeps(*arguments)
    assert isinstance(answer.exception, UserError)
    assert answer.exception.key == key
    assert sweeps.plan is None


def test_the_job_is_printed_instead(sweeps):
    answer = sweeps("--print-config", "train.epochs=7")
    assert yaml.safe_load(answer.stdout)["train"]["epochs"] == 7
    assert sweeps.plan is None


def test_a_dry_run_is_ten_lines_and_a_tree_where_it_is_asked_for(sweeps):
    text_dataset(sweeps.folder / "data")
    said = sweeps("--dry-run", "--trials", 9, "--no-baselines", "--seeds", 2).stdout.splitlines()
    assert len(said) == 10
    assert said[1].split() == ["trials", "9"]
    assert "at most 52; 4 a training, 3 steps each; pruned at epoch 1, 3" in said[4]
    assert "unknown until a training of this sweep has ended" in said[5]
    assert "tiny: 48 training and 24 validation rows" in said[6]
    tree = yaml.safe_load(sweeps("--dry-run", "--print-config", "--trials", 9).stdout)
    assert (tree["sweep"]["trials"], tree["sweep"]["time"]) == (9, None)
    assert sweeps.plan is None


def test_a_space_that_is_used_up_does_not_grow(sweeps):
    space = {"space": {"train.epochs": {"choice": [1, 2]}}, "search": {"sampler": "brute_force"}}
    (sweeps.folder / "space.yaml").write_text(yaml.safe_dump(space))
    answer = sweeps("--trials", 3)
    assert answer.exit_code == 0
    assert "every setting of the space has been tried" in answer.stderr
    assert "grows" not in answer.stderr
