"""Tests of job submission with a stand-in for Ray's client that records its calls."""

import json
import os
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray.job_submission
import requests
from ray.exceptions import AuthenticationError
from ray_jobs import enter_workdir

from mlcl.config.cluster import ClusterConfig
from mlcl.errors import UserError
from mlcl.service.jobs import JobsClient, resume, submit
from mlcl.service.jobs.submit import known_submissions, read_submission

WORDS = ["sweep", "job.yaml", "space.yaml", "train.epochs=2", "--trials", "8"]


@pytest.fixture
def ray_(monkeypatch):
    return enter_workdir(monkeypatch)


@pytest.fixture
def lab(tmp_path, ray_, monkeypatch):
    """Returns `submit(...)` and `resume(...)` with a client, a working directory and a home."""
    monkeypatch.setenv("LAB_TOKEN", "very-secret")
    work = tmp_path / "work"
    work.mkdir()
    for name in ("job.yaml", "space.yaml"):
        (work / name).write_text("x")
    config = ClusterConfig.model_validate({
        "ray": {"address": "http://head:8265", "token": {"env": "LAB_TOKEN"}},
        "mlflow": {
            "uri": "http://mlflow:5000", "username": {"env": "U"}, "password": {"file": "/run/pw"}
        },
        "storage": "/mnt/lab",
        "cache": "/local/",
        "scratch": "/local",
        "env": {"NCCL_DEBUG": "WARN", "HF_TOKEN": {"env": "HF_TOKEN"}},
        "working_dir": {"path": str(work)},
    })  # fmt: skip
    file, home = tmp_path / "lab.yaml", tmp_path / "home"
    client = JobsClient(config, file)
    paths = [Path("job.yaml"), Path("space.yaml")]

    def check(words, folder, files):
        assert (folder, files) == (work, {})
        if "--trialz" in words:
            raise UserError("no such option", key="--trialz")
        return paths

    return SimpleNamespace(
        client=client, home=home, work=work, config=config, file=file,
        submit=lambda words=WORDS, **kwargs: submit(
            client, words, home=home, **({"required_files": paths} | kwargs)
        ),
        resume=lambda id, *words: resume(client, id, words, home=home, check=check),
    )  # fmt: skip


def test_a_command_becomes_a_job_under_its_id_without_secrets(lab, ray_):
    id = lab.submit()
    job, variables = ray_.jobs[id], ray_.jobs[id].runtime_env["env_vars"]
    assert id.startswith("mlcl-")
    assert shlex.split(job.entrypoint) == ["python", "-m", "mlcl.cli.job_entrypoint", *WORDS]
    assert {"job.yaml", "space.yaml"} <= job.files
    assert json.loads(variables.pop("MLCL_REFERENCES")) == {
        "HF_TOKEN": {"env": "HF_TOKEN"},
        "MLFLOW_TRACKING_USERNAME": {"env": "U"},
        "MLFLOW_TRACKING_PASSWORD": {"file": "/run/pw"},
    }
    plain_variables = {"MLCL_HOME": "/mnt/lab", "MLFLOW_TRACKING_URI": "http://mlflow:5000", "MLCL_JOB": id}
    plain_variables |= {"HF_HOME": "/local/huggingface", "MLCL_SCRATCH": "/local"}
    assert variables == {**plain_variables, "NCCL_DEBUG": "WARN", "RAY_JOB_STOP_WAIT_TIME_S": "90"}
    assert ray_.headers == {"Authorization": "Bearer very-secret"}
    text = f"{job.entrypoint} {job.runtime_env} {job.metadata} {read_submission(lab.home, id)}"
    assert "very-secret" not in text


def test_rays_own_variables_do_not_lead_elsewhere(lab, monkeypatch):
    values = []
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere:6379")
    monkeypatch.setattr(
        ray.job_submission,
        "JobSubmissionClient",
        lambda *_, **__: values.append(os.environ.get("RAY_ADDRESS")),
    )
    with pytest.raises(AttributeError):
        JobsClient(lab.config, lab.file).jobs()
    assert values == [None]
    assert os.environ["RAY_ADDRESS"] == "elsewhere:6379"


def test_an_id_is_given_once(lab, ray_):
    lab.submit(id="lab-1")
    with pytest.raises(UserError) as error:
        lab.submit(["run", "job.yaml"], id="lab-1")
    assert str(error.value.found) == f"lab-1: RUNNING, mlcl {shlex.join(WORDS)}"
    assert list(ray_.jobs) == ["lab-1"]


def test_lines_are_followed_into_the_attempt_that_resumes_a_job(lab, ray_, monkeypatch):
    lab.submit(id="lab-1")
    logs = {"lab-1": "one\n", "lab-1-2": "three\n"}

    def pause(_seconds):
        if "lab-1-2" in ray_.jobs:
            ray_.end("lab-1-2", "SUCCEEDED", 0)
            return
        ray_.end("lab-1", "STOPPED")
        logs["lab-1"] += "two\n"
        lab.resume("lab-1")

    monkeypatch.setattr(ray_, "get_job_logs", logs.get)
    # Only the client's pauses are replaced, because subprocess calls sleep too.
    monkeypatch.setattr("mlcl.service.jobs.client.time", SimpleNamespace(sleep=pause))
    assert list(lab.client.lines("lab-1")) == ["one", "two", "three"]


def test_the_message_of_a_job_has_spaces_where_ray_writes_tabs(lab, ray_):
    lab.submit(id="lab-1")
    ray_.jobs["lab-1"].message = "Job failed:\n\tno memory\n"
    assert lab.client.get("lab-1").message.splitlines() == ["Job failed:", "        no memory"]


def test_a_stopped_job_goes_on_under_its_id_with_more_words(lab, ray_):
    id = lab.submit(id="lab-1")
    with pytest.raises(UserError, match="still running"):
        lab.resume(id)
    lab.client.stop(lab.client.get(id))
    assert lab.resume(id, "--trials", "16") == "lab-1-2"
    resumed_job = ray_.jobs["lab-1-2"]
    assert shlex.split(resumed_job.entrypoint)[-4:] == ["--trials", "8", "--trials", "16"]
    assert resumed_job.runtime_env["env_vars"]["MLCL_JOB"] == "lab-1"
    view = lab.client.get("lab-1")
    assert (view.attempt, view.attempts, view.state) == ("lab-1-2", 2, "RUNNING")
    ray_.end("lab-1-2", "FAILED", 3)
    assert lab.resume(id) == "lab-1-3"
    assert shlex.split(ray_.jobs["lab-1-3"].entrypoint)[-2:] == ["--trials", "16"]


def test_words_that_the_cluster_refused_are_not_resumed(lab, ray_):
    id = lab.submit(id="lab-1")
    ray_.end(id, "STOPPED")
    lab.resume(id, "train.epochs=5")
    ray_.end("lab-1-2", "FAILED", 2)
    lab.resume(id, "--trials", "16")
    assert shlex.split(ray_.jobs["lab-1-3"].entrypoint)[3:] == [*WORDS, "--trials", "16"]
    assert read_submission(lab.home, id).words == (*WORDS, "--trials", "16")


def test_what_is_resumed_is_checked_as_what_is_submitted(lab, ray_):
    id = lab.submit()
    ray_.end(id, "SUCCEEDED", 0)
    for words, problem in (((), "complete"), (("--trialz", "16"), "no such option")):
        with pytest.raises(UserError, match=problem):
            lab.resume(id, *words)
    assert lab.resume(id, "--trials", "16") == f"{id}-2"
    ray_.end(f"{id}-2", "STOPPED")
    (lab.work / "job.yaml").unlink()
    with pytest.raises(UserError, match="no such file"):
        lab.resume(id)
    assert list(ray_.jobs) == [id, f"{id}-2"]


def test_a_job_of_another_machine_goes_on_from_here(lab, ray_):
    id = lab.submit()
    ray_.end(id, "STOPPED")
    (lab.home / "jobs" / f"{id}.json").unlink()
    assert lab.resume(id) == f"{id}-2"
    assert known_submissions(lab.home)[id].words == tuple(WORDS)


def test_what_is_unknown_or_no_record_of_ours_is_left_alone(lab):
    id = lab.submit()
    for name, text in (("my notes.json", "{}"), ("damaged.json", "{"), ("a.b.json", "[]")):
        (lab.home / "jobs" / name).write_text(text)
    assert list(known_submissions(lab.home)) == [id]
    with pytest.raises(UserError, match="no such job"):
        lab.resume("mlcl-x")
    with pytest.raises(UserError, match="knows no such job"):
        lab.client.get("mlcl-x")


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ConnectionError("Failed to connect"), "no Ray cluster answers"),
        (requests.exceptions.ConnectionError("refused"), "no Ray cluster answers"),
        (AuthenticationError("Authentication failed: wrong\nlong help"), "does not take this token"),
        (RuntimeError("Request failed with status code 500: x"), "the cluster refused"),
    ],
)
def test_a_cluster_that_does_not_answer_is_one_line(lab, ray_, error, problem):
    ray_.error = error
    with pytest.raises(UserError, match=problem) as exc_info:
        lab.submit()
    assert "\n" not in exc_info.value.line()
    assert "very-secret" not in exc_info.value.line()
