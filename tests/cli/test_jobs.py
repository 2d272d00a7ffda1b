"""`mlcl submit` and its like without a cluster: what they print, and how they exit."""

import getpass
import json
import os
import shlex

import pytest
import ray.job_submission
import yaml
from builders import job_tree
from ray_jobs import enter_workdir
from typer.testing import CliRunner

from mlcl.cli.job_entrypoint import read_references
from mlcl.cli.main import app
from mlcl.errors import UserError

SPACE = {"space": {"objective.heads.*.temperature": {"log_float": [0.05, 1.0]}}}
PLACE = {"ray": {"address": "http://head:8265"}, "storage": "/mnt/lab", "trial": {"cpu": 2, "gpu": 0.5}}
RUN = ("run", "job.yaml", "train.epochs=3")


@pytest.fixture
def ray_(monkeypatch):
    return enter_workdir(monkeypatch)


@pytest.fixture
def lab(tmp_path, monkeypatch, ray_):
    """`mlcl` in a folder with a job, a space and a cluster file, which a variable names."""
    monkeypatch.chdir(tmp_path)
    for name, tree in (("job", job_tree(tmp_path / "data")), ("space", SPACE), ("lab", PLACE)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(tree))
    monkeypatch.setenv("MLCL_CLUSTER", "lab.yaml")
    return lambda *words: CliRunner().invoke(app, list(words))


def words_of(job):
    return shlex.split(job.entrypoint)[3:]


def test_submit_prints_the_id_alone_and_how_to_go_on_elsewhere(lab, ray_):
    answer = lab("submit", *RUN)
    (id,) = ray_.jobs
    assert (answer.exit_code, answer.stdout) == (0, f"{id}\n")
    assert answer.stderr == f"mlcl logs -f {id}   mlcl status {id}   mlcl stop {id}\n"
    assert words_of(ray_.jobs[id]) == list(RUN)


def test_submit_gives_each_process_the_share_of_the_cluster_file_unless_told(lab, ray_):
    lab("submit", "--id", "a", "sweep", "job.yaml", "space.yaml", "--trials", "4")
    assert "--parallel" not in ray_.jobs["a"].entrypoint
    lab("submit", "--id", "b", "sweep", "job.yaml", "space.yaml", "--gpus=1", "--cpus", "1")
    assert words_of(ray_.jobs["a"])[-4:] == ["--cpus", "2", "--gpus", "0.5"]
    assert words_of(ray_.jobs["b"])[-3:] == ["--gpus=1", "--cpus", "1"]


def test_submit_follows_until_the_end(lab):
    answer = lab("submit", "--id", "a", "-f", "--json", *RUN)
    assert answer.exit_code == 0
    document, _, end = answer.stdout.partition("}\n")
    assert json.loads(f"{document}}}") == {"id": "a", "cluster": "http://head:8265", "command": list(RUN)}
    assert end == "log of a\nits end\n"
    assert answer.stderr.endswith("a COMPLETE\n")


def test_a_dry_run_sends_nothing(lab, ray_, tmp_path):
    answer = lab("submit", "--dry-run", "--json", *RUN)
    plan = json.loads(answer.stdout)
    assert plan["command"] == shlex.join(["python", "-m", "mlcl.cli.job_entrypoint", *RUN])
    assert plan["variables"]["MLCL_HOME"] == "/mnt/lab"
    assert (plan["working_dir"]["path"], plan["working_dir"]["files"]) == (str(tmp_path), 3)
    assert not ray_.jobs


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "not a command to submit"),
        (("doctor",), "not a command to submit"),
        (("run", "nojob.yaml"), "no such file"),
        (("run", "space.yaml"), "unknown key"),
        (("run", "job.yaml", "train.epochs=none"), "train.epochs"),
        (("run", "job.yaml", "--home", "x"), "not for a submitted command"),
        (("sweep", "job.yaml", "space.yaml", "--dry-run"), "not for a submitted command"),
        (("run", "/tmp/../etc/hostname"), "hostname"),
        (("reproduce", "no-such-table"), "no such table"),
        (("reproduce",), "needs a table"),
    ],
)
def test_what_cannot_run_is_refused_here(lab, ray_, words, problem):
    answer = lab("submit", *words)
    assert isinstance(answer.exception, UserError)
    assert problem in answer.exception.line()
    assert not ray_.jobs


def test_a_wrong_option_is_a_usage_error_of_the_submitted_command(lab, ray_):
    answer = lab("submit", "sweep", "job.yaml", "space.yaml", "--trialz", "4")
    assert (answer.exit_code, "--trialz" in answer.stderr) == (2, True)
    assert not ray_.jobs


def test_files_are_those_of_the_working_directory(lab, ray_, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(PLACE | {"working_dir": {"path": "code"}}))
    assert "no such file" in lab("submit", *RUN).exception.line()
    (tmp_path / "code" / "job.yaml").write_text((tmp_path / "job.yaml").read_text())
    assert lab("submit", *RUN).exit_code == 0
    assert len(ray_.jobs) == 1


def test_list_shows_the_jobs_of_mlcl(lab):
    for id in ("a", "b"):
        lab("submit", "--id", id, *RUN)
    listed = json.loads(lab("list", "--json").stdout)
    assert [(job["id"], job["state"]) for job in listed["jobs"]] == [("b", "RUNNING"), ("a", "RUNNING")]
    table = lab("list").stdout
    assert table.index(" b ") < table.index(" a ")
    assert "train.epochs=3" in table


@pytest.mark.parametrize(
    ("status", "code", "state", "exit"),
    [
        ("PENDING", None, "PENDING", 0), ("RUNNING", None, "RUNNING", 0), ("STOPPED", None, "STOPPED", 130),
        ("SUCCEEDED", 0, "COMPLETE", 0), ("FAILED", 2, "REFUSED", 2), ("FAILED", 3, "FAILED", 3),
        ("FAILED", 4, "BUDGET", 4), ("FAILED", 130, "STOPPED", 130), ("FAILED", None, "FAILED", 3),
        ("FAILED", -9, "FAILED", 3),
    ],
)  # fmt: skip
def test_status_exits_as_the_command_itself_would(lab, ray_, status, code, state, exit):
    lab("submit", "--id", "a", *RUN)
    ray_.end("a", status, code)
    answer = lab("status", "a")
    assert (answer.exit_code, f"state     {state}" in answer.stdout) == (exit, True)
    view = json.loads(lab("status", "a", "--json").stdout)
    assert (view["state"], view["command"], view["user"]) == (state, list(RUN), getpass.getuser())
    assert (view["started"], view["ended"]) == (1.0, 61.0)


def test_stop_waits_for_the_end_and_resume_takes_further_options(lab, ray_):
    lab("submit", "--id", "a", "sweep", "job.yaml", "space.yaml", "--trials", "4")
    assert lab("stop", "a").stdout == "a STOPPED\n"
    assert "it does not run: STOPPED" in lab("stop", "a").stderr
    assert lab("resume", "a", "--trials", "8").stdout == "a\n"
    assert words_of(ray_.jobs["a-2"])[-2:] == ["--trials", "8"]
    assert lab("logs", "a").stdout == "log of a-2\n"
    assert lab("logs", "-f", "a").exit_code == 0
    refused = lab("resume", "a", "--trialz", "8")
    assert (refused.exit_code, list(ray_.jobs)) == (2, ["a", "a-2"])


@pytest.mark.parametrize("forgotten", [False, True])
def test_the_job_of_another_user_is_stopped_and_resumed_with_force_alone(lab, ray_, monkeypatch, forgotten):
    """Also where the cluster forgot it, and the home alone knows whose it is."""
    lab("submit", "--id", "a", *RUN)
    if forgotten:
        ray_.jobs.clear()
    with monkeypatch.context() as other:
        other.setattr("getpass.getuser", lambda: "somebody-else")
        assert "the job of another user" in lab("resume", "a").exception.line()
        assert list(ray_.jobs) == ([] if forgotten else ["a"])
        if not forgotten:
            assert "the job of another user" in lab("stop", "a").exception.line()
            assert lab("stop", "--force", "a").stdout == "a STOPPED\n"
        assert lab("resume", "--force", "a").stdout == "a\n"
        assert "the job of another user" in lab("stop", "a").exception.line()
    assert lab("stop", "a").stdout == "a STOPPED\n"
    ray_.jobs.clear()
    assert (lab("resume", "a").stdout, words_of(ray_.jobs["a"])) == ("a\n", list(RUN))


def test_a_job_that_does_not_end_is_said(lab, ray_, monkeypatch):
    lab("submit", "--id", "a", *RUN)
    monkeypatch.setattr("mlcl.cli.jobs.STOP_WAIT", 0.0)
    monkeypatch.setattr(ray_, "stop_job", ray_.stopped.append)
    answer = lab("stop", "a")
    assert (answer.exit_code, answer.stdout, ray_.stopped) == (3, "a RUNNING\n", ["a"])


def test_a_cluster_that_was_started_anew_has_forgotten_its_jobs(lab, ray_, tmp_path):
    lab("submit", "--id", "a", *RUN)
    ray_.jobs.clear()
    listed = lab("list", "--json")
    assert json.loads(listed.stdout)["jobs"] == []
    assert "forgotten by the cluster: a; mlcl resume ID" in listed.stderr
    for command in ("status", "logs", "stop"):
        assert "allowed: mlcl resume a" in lab(command, "a").exception.line()
        assert "knows no such job" in lab(command, "b").exception.line()
    (tmp_path / "other.yaml").write_text((tmp_path / "lab.yaml").read_text())
    assert not lab("list", "--cluster", "other.yaml").stderr
    assert lab("resume", "a").exit_code == 0
    assert list(ray_.jobs) == ["a"]


def test_no_cluster_is_named(lab, monkeypatch):
    monkeypatch.delenv("MLCL_CLUSTER")
    for words in (("submit", *RUN), *((command, "a") for command in ("stop", "resume", "logs", "status"))):
        assert "no cluster is named" in lab(*words).exception.line()


def test_the_service_on_this_machine_is_the_cluster_where_none_is_named(lab, ray_, tmp_path, monkeypatch):
    monkeypatch.delenv("MLCL_CLUSTER")
    service = tmp_path / "outputs" / "service"
    service.mkdir(parents=True)
    here = {"ray": {"address": "http://127.0.0.1:8265"}, "storage": str(tmp_path / "outputs")}
    (service / "cluster.yaml").write_text(yaml.safe_dump(here))
    assert lab("submit", *RUN).exit_code == 0
    assert ray_.address == "http://127.0.0.1:8265"


def test_the_driver_finds_secrets_where_they_lie(tmp_path, monkeypatch):
    (tmp_path / "password").write_text("hush\n")
    monkeypatch.setenv("LAB_USER", "ada")
    references = {"A_USER": {"env": "LAB_USER"}, "A_PASSWORD": {"file": str(tmp_path / "password")}}
    monkeypatch.setenv("MLCL_REFERENCES", json.dumps(references))
    monkeypatch.setenv("A_USER", "")  # both are removed again after the test
    monkeypatch.setenv("A_PASSWORD", "")
    read_references()
    assert (os.environ["A_USER"], os.environ["A_PASSWORD"]) == ("ada", "hush")


@pytest.mark.parametrize(
    "references",
    ["x", "[]", '{"A": {"value": "hush"}}', '{"A": {"env": "NOT_SET_HERE"}}', '{"A": {"file": "/no"}}'],
)
def test_the_driver_refuses_what_is_no_reference(references, monkeypatch):
    monkeypatch.setenv("MLCL_REFERENCES", references)
    with pytest.raises(UserError) as caught:
        read_references()
    assert "hush" not in caught.value.line()


def test_the_clusters_client_is_asked_only_when_the_command_is_right(lab, monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError

    monkeypatch.setattr(ray.job_submission, "JobSubmissionClient", unreachable)
    assert "no such file" in lab("submit", "run", "nojob.yaml").exception.line()
    assert "no Ray cluster answers" in lab("submit", *RUN).exception.line()
