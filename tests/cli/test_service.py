"""Tests what `mlcl up`, `mlcl down` and `mlcl status` request and print, and how they exit."""

from types import SimpleNamespace

import pytest
from commands import mlcl

from mlcl.service.local import service
from mlcl.service.local.service import DownResult, ServerStatus, ServiceStatus, UpResult
from mlcl.service.local.settings import ServiceFolder, resolve_settings

URL = "postgresql+psycopg://ada:s3cret@host/mlflow"
RAY, MLFLOW = "http://127.0.0.1:8265", "http://127.0.0.1:5000"
WELL = ServerStatus("ray", RAY, "/ray.log", version="2.60.0")
DEAD = ServerStatus("mlflow", MLFLOW, "/mlflow.log", "is not running", "`mlcl up`")


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Replaces the service; `options` and `force` are what was requested, the other fields its answers."""
    stand_in = SimpleNamespace(
        folder=ServiceFolder(tmp_path), started=("ray", "mlflow"), outside=[], status=None
    )

    def up(options, home, announce):
        stand_in.options = options
        announce("starting")
        store, files = resolve_settings(options, stand_in.folder).without_password.store, stand_in.folder
        secrets = (files.mlflow_password, files.ray_token, files.cluster)
        return UpResult(RAY, MLFLOW, stand_in.started, "admin", *secrets, store, "/kept", stand_in.outside)

    def down(home, force):
        stand_in.force = force
        return DownResult(stand_in.started, 22)

    monkeypatch.setattr(service, "start_service", up)
    monkeypatch.setattr(service, "end_service", down)
    monkeypatch.setattr(service, "service_status", lambda home: stand_in.status)
    monkeypatch.setenv("MLCL_HOME", str(tmp_path))
    for name in ("MLCL_STORE", "MLCL_ARTIFACTS"):
        monkeypatch.delenv(name, raising=False)
    return stand_in


def test_what_was_asked_reaches_the_service(answers):
    ports = {"ray_port": 7001, "dashboard_port": 7002, "mlflow_port": 7003}
    args = [word for name, port in ports.items() for word in (f"--{name.replace('_', '-')}", port)]
    assert mlcl("up", *args, "--store", "sqlite", env={"MLCL_ARTIFACTS": "/a"}).status == 0
    assert answers.options == {**ports, "store": "sqlite", "artifacts": "/a"}
    user = URL.replace(":s3cret", "")  # a URL with a user and no password is allowed
    assert (mlcl("up", "--store", user).status, answers.options) == (0, {"store": user})
    answers.options = None
    result = mlcl("up", "--store", URL)
    assert (result.status, "s3cret" in result.out + result.err, answers.options) == (2, False, None)
    assert (mlcl("down", "--force").status, answers.force) == (0, True)


def test_up_says_where_secrets_are_and_never_what(answers):
    answers.outside, env = ["gcs_server 0.0.0.0:6379"], {"MLCL_STORE": URL}
    answer = mlcl("up", env=env)
    parts = (
        f"Ray     {RAY}  token in {answers.folder.ray_token}",
        f"MLflow  {MLFLOW}  user admin, password in {answers.folder.mlflow_password}",
        "store   postgresql+psycopg://ada:***@host/mlflow",
        "other machines can reach gcs_server 0.0.0.0:6379",
    )
    assert [part for part in parts if part not in answer.out] == []
    assert ("starting" in answer.err, "s3cret" in answer.out + answer.err) == (True, False)
    tree = mlcl("up", "--json", env=env).json
    assert (tree["ray"], tree["mlflow"], "s3cret" in str(tree)) == (RAY, MLFLOW, False)
    assert tree["cluster_file"] == str(answers.folder.cluster)
    answers.started = ()
    assert mlcl("up").out.startswith("already up and well\n")


@pytest.mark.parametrize(
    ("words", "started", "found", "status", "part", "tree"),
    [
        ("down", ("ray", "mlflow"), None, 0, "ended Ray and MLflow: 22 processes\n",
         {"servers": ["ray", "mlflow"], "processes": 22}),
        ("down", (), None, 0, "nothing was running\n", {"servers": []}),
        ("status", (), ServiceStatus("/service"), 3, "not up (nothing in /service): `mlcl up`",
         {"healthy": False}),
        ("status", (), ServiceStatus("/service", (WELL,), nodes=1, jobs=("mlcl-1",)), 0, "jobs    mlcl-1",
         {"healthy": True}),
        ("status", (), ServiceStatus("/service", (WELL, DEAD)), 3,
         "is not running: `mlcl up`; log /mlflow.log", {"healthy": False}),
    ],
)  # fmt: skip
def test_what_is_said_and_how_it_exits(answers, words, started, found, status, part, tree):
    answers.started, answers.status = started, found
    answer = mlcl(words)
    assert (answer.status, part in answer.out) == (status, True), answer
    assert tree.items() <= mlcl(words, "--json").json.items()
