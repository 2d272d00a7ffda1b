"""Tests the output and exit status of `mlcl submit` and related commands without a cluster."""

import getpass
import json
import os
import shlex
import shutil
import subprocess

import pytest
import yaml
from builders import text_dataset
from cli.conftest import CLUSTER
from commands import mlcl
from ray_jobs import enter_workdir

from mlcl.errors import UserError
from mlcl.service.ray.references import resolve_references

RUN = ("run", "job.yaml", "train.epochs=3")
SHARE = ["--cpus", "2", "--gpus", "0.5"]
"""The CPUs and GPUs that the cluster file gives each process."""
SWEEP = ("sweep", "job.yaml", "space.yaml")


@pytest.fixture
def ray_(monkeypatch, folder):
    """Returns the jobs of a cluster that an environment variable names."""
    monkeypatch.setenv("MLCL_CLUSTER", "lab.yaml")
    return enter_workdir(monkeypatch)


@pytest.fixture
def job(ray_):
    """Submits the job `a` and returns the jobs of the cluster."""
    assert mlcl("submit", "--id", "a", *RUN).out == "a\n"
    return ray_


def words_of(job):
    return shlex.split(job.entrypoint)[3:]


def test_submit_prints_the_id_alone_and_how_to_go_on_elsewhere(ray_):
    answer = mlcl("submit", *RUN)
    (id,) = ray_.jobs
    expected = f"mlcl logs -f {id}   mlcl status {id}   mlcl stop {id}\n"
    assert (answer.status, answer.out, answer.err) == (0, f"{id}\n", expected)
    assert words_of(ray_.jobs[id]) == [*RUN, *SHARE]


@pytest.mark.parametrize("words", [["list"], ["status", "a"]])
def test_what_other_users_wrote_is_no_command_to_the_terminal(job, words):
    escapes = "\x1b]0;title\x07[red]"
    job.jobs["a"].metadata |= {"mlcl.command": json.dumps(["run", escapes]), "mlcl.user": escapes}
    job.jobs["a"].message = f"failed\n{escapes}"
    job.end("a", "FAILED", 3)
    answer = mlcl(*words)
    assert "\x1b" not in answer.out + answer.err
    assert "\\x1b]0;title\\x07[red]" in answer.out


@pytest.mark.usefixtures("ray_")
def test_a_cluster_that_was_typed_is_in_the_next_commands():
    option = "--cluster 'the lab.yaml'"
    shutil.copy("lab.yaml", "the lab.yaml")
    expected = f"mlcl logs -f b {option}   mlcl status b {option}   mlcl stop b {option}\n"
    assert mlcl("submit", "--cluster", "the lab.yaml", "--id", "b", *RUN).err == expected


@pytest.mark.parametrize(
    ("more", "passed"),
    [
        (("--trials", "4"), ["--trials", "4", *SHARE]),
        (("--gpus=1", "--cpus", "1"), ["--gpus=1", "--cpus", "1"]),
    ],
)
def test_each_process_gets_the_share_of_the_cluster_file_unless_told(ray_, more, passed):
    mlcl("submit", "--id", "a", *SWEEP, *more)
    assert words_of(ray_.jobs["a"]) == [*SWEEP, *passed]


@pytest.mark.parametrize(
    ("words", "its"),
    [
        ((*SWEEP, "--trials", "4", "--id", "a"), [*SWEEP, "--trials", "4", *SHARE]),
        ((*SWEEP, "--id=a", "-f", "--home", "elsewhere"), [*SWEEP, *SHARE]),
        (("--id", "a", *RUN, "--json", "--cluster", "lab.yaml"), [*RUN, "--json", *SHARE]),
    ],
)
def test_options_of_submit_may_stand_behind_the_command(ray_, monkeypatch, words, its):
    if "--cluster" in words:
        monkeypatch.delenv("MLCL_CLUSTER")
    answer = mlcl("submit", *words)
    assert (answer.status, answer.out.splitlines()[0]) == (0, "a"), answer.err
    assert words_of(ray_.jobs["a"]) == its


def test_submit_follows_until_the_end(ray_):
    answer = mlcl("submit", "--id", "a", "-f", "--json", *RUN)
    document, _, log = answer.out.partition("}\n")
    assert json.loads(f"{document}}}") == {
        "id": "a",
        "cluster": "http://head:8265",
        "command": [*RUN, *SHARE],
    }
    assert (answer.status, log) == (0, "log of a\nits end\n")
    assert answer.err.endswith("a COMPLETE\n")


def test_a_dry_run_sends_nothing(ray_, folder):
    plan = mlcl("submit", "--dry-run", "--json", *RUN).json
    assert plan["command"] == shlex.join(["python", "-m", "mlcl.cli.job_entrypoint", *RUN, *SHARE])
    assert plan["variables"]["MLCL_HOME"] == "/mnt/lab"
    assert (plan["working_dir"]["path"], plan["working_dir"]["files"]) == (str(folder), 4)
    assert not ray_.jobs


def test_files_are_those_of_the_working_directory(ray_, folder):
    (folder / "code").mkdir()
    (folder / "lab.yaml").write_text(yaml.safe_dump(CLUSTER | {"working_dir": {"path": "code"}}))
    assert "no such file" in mlcl("submit", *RUN).err
    (folder / "code" / "job.yaml").write_text((folder / "job.yaml").read_text())
    assert (mlcl("submit", *RUN).status, len(ray_.jobs)) == (0, 1)


def test_a_prepared_data_set_of_the_working_directory_is_uploaded(ray_, folder):
    text_dataset(folder / "texts")
    words = ("baseline", "texts", "--labels", "detail")
    assert mlcl("submit", "--id", "a", *words).out == "a\n"
    assert (words_of(ray_.jobs["a"]), "texts/dataset.json" in ray_.jobs["a"].files) == (list(words), True)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    (folder / ".gitignore").write_text("/texts/\n")
    assert "is not uploaded: git ignores it" in mlcl("submit", *words).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train.epochz=1",), "did you mean epochs"),
        (("train.lr",), "train.lr"),
        (("--data", "elsewhere"), "not SOURCE=PLACE"),
        (("--data", "nothing=here"), "--data"),
        (("--figures", "figures"), "key --figures: a job's copy of the working directory is removed"),
    ],
)
def test_what_a_submitted_table_is_given_is_checked(ray_, words, said):
    answer = mlcl("submit", "reproduce", "table", *words)
    assert (answer.status, said in answer.err, len(ray_.jobs)) == (2, True, 0), answer.err


def test_list_shows_the_jobs_of_mlcl(job):
    mlcl("submit", "--id", "b", *RUN)
    listing = mlcl("list", "--json").json
    assert [(row["id"], row["state"]) for row in listing["jobs"]] == [("b", "RUNNING"), ("a", "RUNNING")]
    table = mlcl("list").out
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
def test_status_exits_as_the_command_itself_would(job, status, code, state, exit):
    job.end("a", status, code)
    answer = mlcl("status", "a")
    assert (answer.status, f"state     {state}" in answer.out) == (exit, True)
    view = mlcl("status", "a", "--json").json
    assert (view["state"], view["command"], view["user"]) == (state, [*RUN, *SHARE], getpass.getuser())
    assert (view["started"], view["ended"]) == (1.0, 61.0)


def test_stop_waits_for_the_end_and_resume_takes_further_options(ray_):
    mlcl("submit", "--id", "a", *SWEEP, "--trials", "4")
    assert mlcl("stop", "a").out == "a STOPPED\n"
    assert "it is not running: STOPPED" in mlcl("stop", "a").err
    assert mlcl("resume", "a", "--trials", "8").out == "a\n"
    assert words_of(ray_.jobs["a-2"])[-2:] == ["--trials", "8"]
    assert mlcl("logs", "a").out == "log of a-2\n"
    assert mlcl("logs", "-f", "a").status == 0
    assert (mlcl("resume", "a", "--trialz", "8").status, list(ray_.jobs)) == (2, ["a", "a-2"])


@pytest.mark.parametrize("forgotten", [False, True])
def test_the_job_of_another_user_is_stopped_and_resumed_with_force_alone(job, monkeypatch, forgotten):
    """Force is also needed if the cluster has forgotten the job, and only the home knows its owner."""
    refusal = "the job of another user"
    if forgotten:
        job.jobs.clear()
    with monkeypatch.context() as other:
        other.setattr("getpass.getuser", lambda: "somebody-else")
        assert refusal in mlcl("resume", "a").err
        assert list(job.jobs) == ([] if forgotten else ["a"])
        if not forgotten:
            assert refusal in mlcl("stop", "a").err
            assert mlcl("stop", "--force", "a").out == "a STOPPED\n"
        assert mlcl("resume", "--force", "a").out == "a\n"
        assert refusal in mlcl("stop", "a").err
    assert mlcl("stop", "a").out == "a STOPPED\n"
    job.jobs.clear()
    assert (mlcl("resume", "a").out, words_of(job.jobs["a"])) == ("a\n", [*RUN, *SHARE])


def test_a_job_that_does_not_end_is_said(job, monkeypatch):
    monkeypatch.setattr("mlcl.cli.jobs.STOP_WAIT", 0.0)
    monkeypatch.setattr(job, "stop_job", job.stopped.append)
    answer = mlcl("stop", "a")
    assert (answer.status, answer.out, job.stopped) == (3, "a RUNNING\n", ["a"])


def test_a_cluster_that_was_started_anew_has_forgotten_its_jobs(job, folder):
    job.jobs.clear()
    listing = mlcl("list", "--json")
    assert (listing.json["jobs"], "no longer known to the cluster: a; mlcl resume ID" in listing.err) == (
        [],
        True,
    )
    for command in ("status", "logs", "stop"):
        assert "allowed: mlcl resume a" in mlcl(command, "a").err
        assert "knows no such job" in mlcl(command, "b").err
    (folder / "other.yaml").write_text((folder / "lab.yaml").read_text())
    assert not mlcl("list", "--cluster", "other.yaml").err
    assert (mlcl("resume", "a").status, list(job.jobs)) == (0, ["a"])


def test_the_service_on_this_machine_is_the_cluster_where_none_is_named(ray_, folder, monkeypatch):
    monkeypatch.delenv("MLCL_CLUSTER")
    service = folder / "outputs" / "service"
    service.mkdir(parents=True)
    cluster = {"ray": {"address": "http://127.0.0.1:8265"}, "storage": str(folder / "outputs")}
    (service / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    assert (mlcl("submit", *RUN).status, ray_.address) == (0, "http://127.0.0.1:8265")


def test_the_driver_finds_secrets_where_they_are(tmp_path, monkeypatch):
    (tmp_path / "password").write_text("hush\n")
    references = {"A_USER": {"env": "LAB_USER"}, "A_PASSWORD": {"file": str(tmp_path / "password")}}
    variables = {"LAB_USER": "ada", "A_USER": "", "A_PASSWORD": "", "MLCL_REFERENCES": json.dumps(references)}
    for name, value in variables.items():  # the variables are removed again after the test
        monkeypatch.setenv(name, value)
    resolve_references()
    assert (os.environ["A_USER"], os.environ["A_PASSWORD"]) == ("ada", "hush")


def test_a_worker_finds_its_secrets_and_needs_no_password_of_mlflow(monkeypatch):
    references = {
        "HF_TOKEN": {"env": "LAB_TOKEN"},
        "MLFLOW_TRACKING_PASSWORD": {"file": "/on/the/head/alone"},
    }
    variables = {"LAB_TOKEN": "hush", "HF_TOKEN": "", "MLCL_REFERENCES": json.dumps(references)}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    resolve_references(worker=True)
    assert os.environ["HF_TOKEN"] == "hush"
    monkeypatch.delenv("LAB_TOKEN")
    with pytest.raises(UserError, match=rf"HF_TOKEN, on {os.uname().nodename} .*LAB_TOKEN") as error:
        resolve_references(worker=True)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("encoder", "refused"),
    [
        ({"name": "resnet18", "weights": "models/resnet.safetensors"}, "encoder.weights"),
        ({"name": "resnet18", "weights": "own/resnet.safetensors"}, ""),
        ({"name": "resnet18", "weights": "/storage/resnet.safetensors"}, ""),
        ({"name": "transformer", "model": "./models/bert"}, "encoder.model"),
        ({"name": "transformer", "model": "s3://lab/bert"}, ""),
        ({"name": "transformer", "model": "own"}, ""),
        (
            {"name": "features", "inputs": ["transformer"], "transformer": {"model": "models"}},
            "encoder.transformer",
        ),
    ],
)
def test_weights_with_a_relative_path_are_uploaded_or_refused(ray_, folder, encoder, refused):
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    (folder / ".gitignore").write_text("/models/\n")
    for name in ("models", "own"):
        (folder / name).mkdir()
        (folder / name / "resnet.safetensors").touch()
    tree = yaml.safe_load((folder / "job.yaml").read_text())
    (folder / "job.yaml").write_text(yaml.safe_dump(tree | {"encoder": encoder}))
    answer = mlcl("submit", "--dry-run", *RUN)
    assert (answer.status, refused in answer.err) == (2 if refused else 0, True), answer.err
    assert ("mlcl models fetch" in answer.err) == bool(refused)


@pytest.mark.parametrize(
    "references",
    ["x", "[]", '{"A": {"value": "hush"}}', '{"A": {"env": "NOT_SET_HERE"}}', '{"A": {"file": "/no"}}'],
)
def test_the_driver_refuses_what_is_no_reference(references, monkeypatch):
    monkeypatch.setenv("MLCL_REFERENCES", references)
    with pytest.raises(UserError) as error:
        resolve_references()
    assert "hush" not in error.value.line()
