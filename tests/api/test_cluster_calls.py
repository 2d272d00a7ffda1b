"""Tests `mlcl.run` and `mlcl.sweep` with `on=FILE`: the job of `mlcl submit`, and the returned results."""

import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray.job_submission
import torch
import yaml
from api.modules import Bag
from builders import job_tree, text_dataset
from commands import mlcl as command
from mlflow_servers import mlflow_server
from ray_jobs import Cluster
from sweeps import World
from torch import nn
from typer.main import get_command

import mlcl
from mlcl.api.answer import Answer
from mlcl.api.cluster_command import Caller, override_word
from mlcl.api.cluster_job import ClusterResults
from mlcl.api.common import job_of, with_encoder
from mlcl.backports import chdir
from mlcl.cli.jobs import check_words
from mlcl.cli.main import app
from mlcl.config import job_hash, load_job, parse_override
from mlcl.config.cluster import Reference, load_cluster
from mlcl.errors import MachineError, UserError
from mlcl.models import ENCODERS, build_encoder
from mlcl.service.command_checks import check_command
from mlcl.service.jobs import client, known_submissions

pytestmark = pytest.mark.usefixtures("forgotten_plugin_files")

SPACE = {
    "space": {"objective.heads.*.temperature": {"log_float": [0.05, 1.0]}},
    "search": {"scheduler": "none"},
}
SMALL = {"trials": 3, "seeds": 3, "fitted": False}
HERE = {"home": "../here", "on": "lab.yaml"}
SWEEP = [
    "sweep",
    "job.yaml",
    "space.yaml",
    "--trials",
    "16",
    "--seeds",
    "0",
    "--searches",
    "3",
    "--confirm",
    "2",
]


class Seen(nn.Module):
    def forward(self, seen):
        return seen


class Jobs(Cluster):
    """A stand-in for Ray's jobs server whose jobs end with the states of `ends`, and print `log`."""

    def __init__(self):
        super().__init__()
        self.ends, self.log, self.texts = [("FAILED", 3)], "begins\nfailed: no disk\n", {}

    def submit_job(self, *, submission_id, runtime_env, **job):
        super().submit_job(submission_id=submission_id, runtime_env=runtime_env, **job)
        folder = Path(runtime_env["working_dir"])
        self.texts[submission_id] = {
            str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.yaml")
        }

    def get_job_logs(self, id):
        if self.jobs[id].status.value == "RUNNING":
            if not self.ends:
                raise KeyboardInterrupt
            self.end(id, *self.ends.pop(0))
        return self.log


class Head(Cluster):
    """A stand-in for Ray's jobs server that runs a job in this process when it is submitted."""

    def submit_job(self, *, entrypoint, submission_id, runtime_env, metadata):
        options = {"submission_id": submission_id, "runtime_env": runtime_env, "metadata": metadata}
        super().submit_job(entrypoint=entrypoint, **options)
        variables = runtime_env["env_vars"]
        references = json.loads(variables["MLCL_REFERENCES"])
        secrets = {
            name: Reference.model_validate(reference).resolve(name) for name, reference in references.items()
        }
        with chdir(Path(runtime_env["working_dir"])):
            answer = command(*shlex.split(entrypoint)[3:], env=variables | secrets)
        self.jobs[submission_id].log = answer.err + answer.out
        self.end(submission_id, "FAILED" if answer.status else "SUCCEEDED", answer.status)

    def get_job_logs(self, id):
        return self.jobs[id].log


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Returns the working directory, with a job, a space and a cluster file; `storage` is beside it."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLCL_HOME", "MLCL_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    work, storage = tmp_path / "work", tmp_path / "storage"
    for path in (work, storage):
        path.mkdir()
    tree = job_tree(text_dataset(tmp_path / "data"))
    lab = {"ray": {"address": "http://head:8265"}, "storage": str(storage), "trial": {"cpu": 2}}
    for name, content in {"job": tree, "space": SPACE, "lab": lab}.items():
        (work / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    monkeypatch.chdir(work)
    monkeypatch.setattr(client, "LINES_EVERY", 0.0)
    return work


def entered(monkeypatch, cluster):
    monkeypatch.setattr(ray.job_submission, "JobSubmissionClient", cluster)
    return cluster


@pytest.fixture
def jobs(folder, monkeypatch):
    return entered(monkeypatch, Jobs())


def words_of(job):
    return shlex.split(job.entrypoint)[3:]


def test_a_sweep_on_a_cluster_gives_the_answer_of_its_storage(folder, monkeypatch):
    head, storage, lines = entered(monkeypatch, Head()), folder.parent / "storage", []
    World(storage, monkeypatch, f"sqlite:///{storage}/mlflow.db")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")  # a variable of the cluster alone
    answer = mlcl.sweep("job.yaml", "space.yaml", progress=lines.append, **SMALL, **HERE)
    (id,) = head.jobs
    assert (answer.name, answer.state, answer.result.id) == ("job-space", "COMPLETE", id)
    assert lines[0].startswith(f"{id}: mlcl logs -f {id} --cluster lab.yaml   mlcl status {id} --cluster")
    assert [line for line in lines[1:] if line] == [line for line in head.jobs[id].log.splitlines() if line]
    stored_answer = mlcl.load("job-space", home=storage)
    assert answer.verdict == stored_answer.verdict != ""
    assert answer.frame["score"].equals(stored_answer.frame["score"])
    assert answer.to_job("best.yaml").is_file()
    assert answer.dashboard == stored_answer.dashboard

    longer_answer = mlcl.sweep("job.yaml", "space.yaml", progress=None, **{**SMALL, "trials": 6}, **HERE)
    assert len(head.jobs) == 2
    assert (longer_answer.result.id, len(longer_answer.result.trials)) == (id, 6)
    with pytest.raises(
        UserError, match=r"key on: the cluster refuses.*the sweep of this name has another job"
    ):
        mlcl.sweep("job.yaml", "space.yaml", {"train.epochs": 7}, progress=None, **SMALL, **HERE)


def test_a_run_on_a_cluster_gives_the_report_of_its_storage(folder, monkeypatch):
    head, lines = entered(monkeypatch, Head()), []
    report = mlcl.run("job.yaml", {"train.epochs": 2}, progress=lines.append, **HERE)
    (id,) = head.jobs
    assert (report.id, report.state, report.resumed) == (id, "COMPLETE", False)
    assert report.folder == folder.parent / "storage" / "runs" / id
    assert any(line.startswith("epoch 2/2") for line in lines)
    local = mlcl.run("job.yaml", {"train.epochs": 2}, home="../here", progress=None)
    scores = {name: value for name, value in report.metrics.items() if not name.startswith("time/")}
    assert scores.keys() >= {"val/accuracy", "test/accuracy"}
    assert scores.items() <= local.metrics.items()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mlcl.run("job.yaml", {"train.epochs": 2}, fresh=True, gpus=0.5, **HERE),
         ["run", "job.yaml", "train.epochs=2", "--fresh", "--gpus", "0.5"]),
        (lambda: mlcl.sweep("job.yaml", "space.yaml", baselines=None, **HERE), SWEEP),
        (lambda: mlcl.sweep(
            "job.yaml", "space.yaml", {"encoder.name": "cnn_text"}, control="job.yaml",
            baselines=["job.yaml"], try_first=[
                {"objective.heads.detail.temperature": 0.25, "objective.heads.topic.temperature": 0.1}],
            budget="2h", cpus=1, name="mine", warm_start="other", fresh=True, fitted=False, **HERE),
         [*SWEEP[:3], "encoder.name=cnn_text", "--name", "mine", *SWEEP[3:], "--control", "job.yaml",
          "--warm-start", "other", "--baseline", "job.yaml", "--try",
          "objective.heads.detail.temperature=0.25,objective.heads.topic.temperature=0.1",
          "--no-baselines", "--fresh", "--cpus", "1",
          "--budget", "2h"]),
    ],
)  # fmt: skip
def test_the_job_is_that_of_the_command_line(jobs, call, words):
    with pytest.raises(MachineError):
        call()
    assert command("submit", "--id", "typed", "--cluster", "lab.yaml", *words).status == 0
    call_job, typed_job = jobs.jobs.values()
    assert call_job.entrypoint == typed_job.entrypoint
    assert call_job.files == typed_job.files
    assert jobs.texts[call_job.submission_id] == jobs.texts["typed"] != {}
    variables = [dict(job.runtime_env["env_vars"], MLCL_JOB="") for job in (call_job, typed_job)]
    assert variables[0] == variables[1]


def test_mappings_and_classes_are_files_of_the_job(jobs, folder):
    tree = yaml.safe_load((folder / "job.yaml").read_text())
    with pytest.raises(MachineError):
        mlcl.sweep(tree, SPACE, {"train.epochs": 3}, control=tree, encoder=Bag, **HERE)
    (id,) = jobs.jobs
    name, job, space = words_of(jobs.jobs[id])[:3]
    control = words_of(jobs.jobs[id])[words_of(jobs.jobs[id]).index("--control") + 1]
    assert name == "sweep"
    assert yaml.safe_load(jobs.texts[id][space]) == SPACE
    (plugin,) = (folder.parent / "here/encoders").glob("Bag_*.py")
    for path in (job, control):
        loaded_job = load_job(yaml.safe_load(jobs.texts[id][path]))
        assert (loaded_job.encoder.name, loaded_job.train.epochs) == (plugin.stem, 3)
        assert [job_plugin.source for job_plugin in loaded_job.plugins] == [plugin.read_text()]
    assert ["--name", "tiny"] == words_of(jobs.jobs[id])[3:5]
    assert not (folder / job).exists()
    assert command("resume", id, "--cluster", "lab.yaml", "--home", "../here").out == f"{id}\n"
    assert {job, space, control} <= jobs.texts[f"{id}-2"].keys()


def test_a_collate_function_is_in_the_job(jobs, folder):
    with pytest.raises(MachineError):
        mlcl.run("job.yaml", encoder=Seen, collate=lambda texts: {"seen": torch.ones(len(texts), 4)}, **HERE)
    (id,) = jobs.jobs
    job = load_job(yaml.safe_load(jobs.texts[id][words_of(jobs.jobs[id])[1]]))
    assert build_encoder(job.encoder).dim == 4
    assert ENCODERS[job.encoder.name].collate(["a"])["seen"].shape == (1, 4)


def test_the_parameters_that_are_checked_are_those_of_the_words(jobs, folder, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "mlcl.api.cluster_job.check_command", lambda *args: calls.append(args) or check_command(*args)
    )
    (folder / "base.yaml").write_text((folder / "job.yaml").read_text())
    (folder / "job.yaml").write_text("base: base.yaml\n")
    with pytest.raises(MachineError):
        mlcl.sweep("job.yaml", SPACE, control="base.yaml", baselines=["job.yaml"], **HERE)
    (submission,) = known_submissions(folder.parent / "here").values()
    needed_files = check_words(get_command(app), submission.words, folder, submission.files)
    assert check_command(*calls[0]) == needed_files == [Path("job.yaml"), Path("base.yaml")]


def test_an_interrupt_leaves_the_job_and_the_same_call_follows_it(jobs):
    lines, call = [], lambda **options: mlcl.run("job.yaml", progress=lines.append, **HERE, **options)
    jobs.ends.clear()
    with pytest.raises(KeyboardInterrupt):
        call()
    (id,) = jobs.jobs
    assert (jobs.stopped, jobs.jobs[id].status.value) == ([], "RUNNING")
    assert lines[-1].startswith("the job goes on: the same call follows it")
    jobs.ends.append(("STOPPED",))
    with pytest.raises(MachineError, match=f"{id} is STOPPED, and there is no .*mlflow.db"):
        call()
    assert list(jobs.jobs) == [id]
    jobs.ends.append(("SUCCEEDED", 0))
    with pytest.raises(MachineError, match=f"{id} is COMPLETE"):
        call()
    assert list(jobs.jobs) == [id, f"{id}-2"]
    jobs.ends.append(("FAILED", 3))
    with pytest.raises(MachineError, match=r"is FAILED.*: no disk"):
        call()
    assert len({job.metadata["mlcl.id"] for job in jobs.jobs.values()}) == 2
    jobs.ends.append(("FAILED", 3))
    with pytest.raises(MachineError):
        call(fresh=True)
    assert len({job.metadata["mlcl.id"] for job in jobs.jobs.values()}) == 3


@pytest.mark.parametrize(
    ("change", "how", "problem"),
    [
        ({}, {"on": "nowhere.yaml"}, "nowhere.yaml: no such file"),
        ({"storage": "relative"}, {}, "lab.yaml, key storage"),
        ({"storage": "/not/here"}, {}, r"its results cannot be read from this machine.*allowed: mlflow.uri"),
        ({"mlflow": {"uri": "http://127.0.0.1:1"}}, {}, "tracking store|does not answer|no answer|refused"),
        ({}, {"encoder": nn.Linear(3, 4)}, r"key encoder: an object cannot be sent to the cluster.*a class"),
        ({}, {"tokenizer": object()}, "key tokenizer: an object cannot be sent to the cluster"),
        ({}, {"overrides": {"train.epoch": 3}}, r"train\.epoch"),
        ({}, {"overrides": {"train.lr": object()}}, "key train.lr: cannot be written to a file"),
        ({}, {"job": "missing.yaml"}, "missing.yaml: no such file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_before_anything_is_submitted(jobs, folder, change, how, problem):
    lab = yaml.safe_load((folder / "lab.yaml").read_text()) | change
    (folder / "lab.yaml").write_text(yaml.safe_dump(lab))
    how = {"job": "job.yaml", **HERE, **how}
    with pytest.raises(UserError, match=problem) as error:
        mlcl.run(how.pop("job"), **how)
    assert "\n" not in error.value.line()
    assert jobs.jobs == {}


CONTENTS = {
    "empty.yaml": "",
    "list.yaml": "- a",
    "torn.yaml": "a: [",
    "no-storage.yaml": "ray: {address: 'http://head:8265'}",
    "no-ray.yaml": "storage: /shared",
    "other.yaml": "storage: /shared\nray: {address: 'http://head:8265'}\nwat: 1",
}
PATH = "allowed: the path of a cluster file, which names ray and storage; see `mlcl submit --cluster`"


@pytest.mark.parametrize(
    "call", [mlcl.run, lambda *args, **options: mlcl.sweep(*args, "space.yaml", **options)]
)
@pytest.mark.parametrize(
    ("on", "line"),
    [
        ("nowhere.yaml", f"on=nowhere.yaml: no such file; found: nothing; {PATH}"),
        (Path("nowhere.yaml"), f"on=nowhere.yaml: no such file; found: nothing; {PATH}"),
        (".", f"on=.: cannot be read; found: [Errno 21] Is a directory: '.'; {PATH}"),
        ("a\0b", f"on=a\\x00b: cannot be read; found: embedded null byte; {PATH}"),
        ("empty.yaml", f"on=empty.yaml: must be a mapping of keys; found: nothing; {PATH}"),
        ("list.yaml", f"on=list.yaml: must be a mapping of keys; found: list; {PATH}"),
        ("torn.yaml", "on=torn.yaml: not valid YAML; found: expected the node content"),
        ("no-storage.yaml", f"on=no-storage.yaml, key storage: missing key; found: nothing; {PATH}"),
        ("no-ray.yaml", f"on=no-ray.yaml, key ray: missing key; found: not shown; {PATH}"),
        ("other.yaml", "on=other.yaml, key wat: unknown key; found: wat; allowed: cache, env, mlflow"),
        ("", f"key on: no cluster file; found: ''; {PATH}"),
        (False, f"key on: no cluster file; found: bool; {PATH}"),
        (8265, f"key on: no cluster file; found: int; {PATH}"),
        (b"lab.yaml", f"key on: no cluster file; found: bytes; {PATH}"),
        ({"ray": {"password": "x"}}, f"key on: no cluster file; found: dict; {PATH}"),
        (["lab.yaml"], f"key on: no cluster file; found: list; {PATH}"),
    ],
)
def test_a_wrong_cluster_is_one_line_before_anything_is_written(jobs, folder, call, on, line):
    for name, text in CONTENTS.items():
        (folder / name).write_text(text)
    with pytest.raises(UserError) as error:
        call("job.yaml", encoder=Bag, home="../here", on=on)
    assert error.value.line().startswith(line)
    assert jobs.jobs == {}
    assert not (folder.parent / "here").exists()


@pytest.mark.parametrize(("on", "found"), [("lab.yaml", "lab.yaml"), (8265, "int")])
def test_a_comparison_is_on_this_machine(folder, on, found):
    with pytest.raises(UserError) as error:
        mlcl.compare(["a", "b"], labels=["x", "y"], losses="supcon", home="../here", on=on)
    line = "key on: data are prepared and compared on this machine"
    assert error.value.line() == f"{line}; found: {found}; allowed: on= of mlcl.sweep and mlcl.run"
    assert not (folder.parent / "here").exists()


def test_an_unreachable_head_is_one_line(jobs, folder):
    jobs.error = ConnectionError("refused")
    with pytest.raises(UserError, match="no Ray cluster answers"):
        mlcl.run("job.yaml", **HERE)
    assert not (folder.parent / "here/jobs").exists()


@pytest.mark.parametrize("baselines", ["job.yaml", Path("job.yaml")])
def test_baselines_are_a_list(jobs, baselines):
    with pytest.raises(UserError, match=r"key baselines: no list; found: job\.yaml"):
        mlcl.sweep("job.yaml", "space.yaml", baselines=baselines, **HERE)
    assert jobs.jobs == {}


def test_baselines_beside_a_class_are_refused(jobs):
    with pytest.raises(
        UserError, match="key baselines: baselines cannot be trained with your own encoder on a cluster"
    ):
        mlcl.sweep("job.yaml", "space.yaml", encoder=Bag, baselines=["job.yaml"], **HERE)
    assert jobs.jobs == {}


@pytest.mark.parametrize(
    "value",
    [1, 1.5, 1e-05, True, None, "on", "1", "a, b", "tüb: x", "", [1, "a"], {"k": [0.1], "n": None}, "a'b\"c"],
)
def test_an_override_is_a_word(value):
    assert parse_override(override_word("a.b", value)) == ("a.b", value)


def test_an_override_may_be_a_path_but_no_text_of_lines():
    assert override_word("data.path", Path("a/b")) == "data.path=a/b"
    with pytest.raises(UserError, match="key a: cannot be passed on a command line"):
        override_word("a", "two\nlines")


def test_a_carried_job_has_the_hash_of_a_local_one(folder):
    caller = Caller.of((Bag, None), "job.yaml", {"train.lr": 0.02}, folder.parent / "here", print)
    carried_job = load_job(yaml.safe_load(caller.files[str(caller.job("job.yaml", caller.overrides))]))
    overrides = with_encoder(Bag, None, "job.yaml", {"train.lr": 0.02}, folder.parent / "here", print)
    assert job_hash(carried_job) == job_hash(job_of("job.yaml", overrides))


def test_results_are_read_from_mlflow_with_the_user_of_the_cluster_file(folder, monkeypatch):
    entered(monkeypatch, Head())
    with mlflow_server(folder.parent / "service") as (server, service):
        login = {"username": {"file": str(service.mlflow_user)}, "password": {"file": str(server.secret)}}
        lab = yaml.safe_load((folder / "lab.yaml").read_text()) | {"mlflow": {"uri": server.address, **login}}
        (folder / "lab.yaml").write_text(yaml.safe_dump(lab))
        report = mlcl.run("job.yaml", {"train.epochs": 1}, progress=None, **HERE)
        result = json.loads((report.folder / "result.json").read_text())
        assert (report.state, report.metrics) == ("COMPLETE", result)

        cluster, home = load_cluster(Path("lab.yaml")), folder.parent / "here"
        results = ClusterResults.of(cluster, Path("lab.yaml"), home)
        assert results.tracker().shown == server.address.replace(
            "//", f"//{service.mlflow_user.read_text().strip()}:***@"
        )
        wrong_mlflow = cluster.mlflow.model_copy(update={"password": cluster.mlflow.username})
        with pytest.raises(UserError, match="tracking store cannot be used"):
            ClusterResults.of(cluster.model_copy(update={"mlflow": wrong_mlflow}), Path("lab.yaml"), home)


def test_an_answer_keeps_the_store_that_it_was_read_from(tmp_path):
    assert Answer(SimpleNamespace(), tmp_path, "http://lab:5000").dashboard == "open http://lab:5000"
