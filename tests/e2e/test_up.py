"""Tests of `mlcl up`, whose Ray head and MLflow server refuse requests without the secret, and of its end."""

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient
from patience import until

from mlcl.config.cluster import load_cluster
from mlcl.service.local.processes import free_port, process_tree
from mlcl.service.local.service import read_state, service_status
from mlcl.service.local.settings import ServiceFolder

pytestmark = pytest.mark.slow

JOB = """
import pathlib, sys, time
import ray

ray.init()
assert ray.get(ray.remote(lambda: 6 * 7).remote()) == 42
pathlib.Path(sys.argv[1]).touch()
time.sleep(1000)
"""


def ports():
    numbers = {"--ray-port": free_port(), "--dashboard-port": free_port(), "--mlflow-port": free_port()}
    return [word for option, number in numbers.items() for word in (option, str(number))]


def status_of(url, token=None, body=None):
    """Returns the HTTP status of a request, which has a token if one is given."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, data=body and json.dumps(body).encode(), headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@dataclass
class Service:
    """The output of `mlcl up`, and the processes that it started."""

    home: Path
    printed: dict

    @property
    def cluster(self):
        return load_cluster(Path(self.printed["cluster_file"]))

    def members(self):
        servers = read_state(ServiceFolder(self.home)).servers.values()
        return [member for server in servers for member in process_tree(server.processes)]


@pytest.fixture
def service(mlcl):
    answer = mlcl("up", *ports(), "--json")
    try:
        assert answer.status == 0, answer.err
        yield Service(mlcl.home, answer.json)
    finally:
        mlcl("down", "--force")


def words(member):
    """Returns the command line of a process, which is empty if the process has ended."""
    try:
        return " ".join(member.cmdline())
    except psutil.Error:
        return ""


def lives(member):
    try:
        return member.is_running() and member.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_only_who_has_the_secret_is_answered(mlcl, service, monkeypatch):
    ray, mlflow = service.printed["ray"], service.printed["mlflow"]
    token = service.cluster.ray.token.resolve("ray.token")
    jobs = f"{ray}/api/jobs/"
    assert [status_of(jobs), status_of(jobs, "0" * 64), status_of(jobs, token)] == [401, 403, 200]
    assert status_of(f"{mlflow}/api/2.0/mlflow/experiments/search?max_results=1") == 401

    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow)
    answer = mlcl("run", mlcl.job)
    assert answer.status != 0
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", service.printed["user"])
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", service.cluster.mlflow.password.resolve("password"))
    assert mlcl("run", mlcl.job).status == 0
    client = MlflowClient(mlflow)
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    assert [run.data.tags["mlcl.state"] for run in runs] == ["COMPLETE"]
    secrets = (token, service.cluster.mlflow.password.resolve("password"))
    for member in service.members():
        assert not [secret for secret in secrets if secret in words(member)]


def test_jobs_run_on_loopback_alone_and_end_with_it(mlcl, service):
    script, marker = mlcl.folder / "job.py", mlcl.folder / "started"
    script.write_text(JOB)
    body = {"entrypoint": f"{sys.executable} {script} {marker}", "submission_id": "mlcl-job"}
    token = service.cluster.ray.token.resolve("ray.token")
    assert status_of(f"{service.printed['ray']}/api/jobs/", token, body) == 200
    until(marker.exists)

    status = service_status(service.home)
    assert (status.healthy, status.nodes, status.jobs) == (True, 1, ("mlcl-job",))
    assert [server.outside for server in status.servers] == [[], []]
    members = service.members()
    assert any(str(script) in words(member) for member in members)
    answer = mlcl("down")
    assert (answer.status, "jobs run: mlcl-job" in answer.err) == (2, True)

    assert mlcl("down", "--force").status == 0
    assert not [member for member in members if lives(member)]
    assert not service_status(service.home).servers
    assert list(ServiceFolder(service.home).ray_logs.glob("*/job-driver-mlcl-job.log"))
    assert mlcl("down").out == "nothing was running\n"


def test_a_start_that_is_interrupted_leaves_nothing(mlcl):
    folder = ServiceFolder(mlcl.home)
    process = mlcl.start("up", *ports())
    until(lambda: folder.state.exists() and len(read_state(folder).servers) == 2)
    members = Service(mlcl.home, {}).members()
    assert members
    os.kill(process.pid, signal.SIGINT)
    assert process.answer().status == 130
    assert not [member for member in members if lives(member)]
    assert not folder.state.exists()
