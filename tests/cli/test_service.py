"""`mlcl up`, `mlcl down` and `mlcl status`: what they ask for, what they print, how they exit."""

import json

import pytest
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.service.local import service as local
from mlcl.service.local.service import DownResult, ServerStatus, ServiceStatus, UpResult
from mlcl.service.local.settings import ServiceFolder, resolve_settings

URL = "postgresql+psycopg://ada:s3cret@host/mlflow"
WELL = ServerStatus("ray", "http://127.0.0.1:8265", "/ray.log", version="2.60.0")
DEAD = ServerStatus("mlflow", "http://127.0.0.1:5000", "/mlflow.log", "is not running", "`mlcl up`")


class Commands:
    """The command line alone; `options` and `force` are what the service was then asked for."""

    def __init__(self, folder):
        self.home, self.options, self.force = folder / "home", None, None
        self.outside, self.started, self.status = [], ("ray", "mlflow"), None

    def up(self, options, home, announce):
        self.options, folder = options, ServiceFolder(home)
        store = resolve_settings(options, folder).shown.store
        announce("starting")
        files = (folder.mlflow_password, folder.ray_token, folder.cluster)
        where = ("http://127.0.0.1:8265", "http://127.0.0.1:5000")
        return UpResult(*where, self.started, "admin", *files, store, "/kept", self.outside)

    def down(self, home, force):
        self.force = force
        return DownResult(("ray", "mlflow") if self.started else (), 22)

    def __call__(self, *arguments, env=None):
        command = [*map(str, arguments), "--home", str(self.home)]
        return CliRunner().invoke(app, command, env=env)


@pytest.fixture
def commands(tmp_path, monkeypatch):
    made = Commands(tmp_path)
    monkeypatch.setattr(local, "up", made.up)
    monkeypatch.setattr(local, "down", made.down)
    monkeypatch.setattr(local, "service_status", lambda home: made.status)
    for name in ("MLCL_STORE", "MLCL_ARTIFACTS"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_what_was_asked_reaches_the_service(commands, tmp_path):
    ports = ("--ray-port", 7001, "--dashboard-port", 7002, "--mlflow-port", 7003)
    answer = commands("up", *ports, "--store", "sqlite", env={"MLCL_ARTIFACTS": str(tmp_path)})
    assert answer.exit_code == 0
    asked = {"ray_port": 7001, "dashboard_port": 7002, "mlflow_port": 7003}
    assert commands.options == {**asked, "store": "sqlite", "artifacts": str(tmp_path)}
    typed = URL.replace(":s3cret", "")  # a user alone may be typed
    assert commands("up", "--store", typed).exit_code == 0
    assert commands.options == {"store": typed}


def test_up_says_where_secrets_are_and_never_what(commands):
    commands.outside = ["gcs_server 0.0.0.0:6379"]
    answer = commands("up", env={"MLCL_STORE": URL})
    folder = ServiceFolder(commands.home)
    for expected in (
        f"Ray     http://127.0.0.1:8265  token in {folder.ray_token}",
        f"MLflow  http://127.0.0.1:5000  user admin, password in {folder.mlflow_password}",
        "store   postgresql+psycopg://ada:***@host/mlflow",
        "other machines can reach gcs_server 0.0.0.0:6379",
    ):
        assert expected in answer.stdout
    assert ("starting" in answer.stderr, "s3cret" in answer.output) == (True, False)
    commands.started = ()
    assert commands("up").stdout.startswith("already up and well\n")
    tree = json.loads(commands("up", "--json", env={"MLCL_STORE": URL}).stdout)
    assert (tree["ray"], tree["mlflow"]) == ("http://127.0.0.1:8265", "http://127.0.0.1:5000")
    assert (tree["cluster_file"], "s3cret" in str(tree)) == (str(folder.cluster), False)


def test_down(commands):
    assert commands("down", "--force").stdout == "ended Ray and MLflow: 22 processes\n"
    assert commands.force is True
    commands.started = ()
    answer = commands("down")
    assert (answer.exit_code, answer.stdout, commands.force) == (0, "nothing was running\n", False)
    assert json.loads(commands("down", "--json").stdout) == {"servers": [], "processes": 22}


@pytest.mark.parametrize(
    ("found", "code", "expected"),
    [
        (ServiceStatus("/service"), 3, "not up (nothing in /service): `mlcl up`"),
        (ServiceStatus("/service", (WELL,), nodes=1, jobs=("mlcl-1",)), 0, "jobs    mlcl-1"),
        (ServiceStatus("/service", (WELL, DEAD)), 3, "is not running: `mlcl up`; log /mlflow.log"),
    ],
)
def test_status_tells_what_is_wrong_and_the_mend(commands, found, code, expected):
    commands.status = found
    answer = commands("status")
    assert (answer.exit_code, expected in answer.stdout) == (code, True), answer.stdout
    tree = json.loads(commands("status", "--json").stdout)
    assert tree["healthy"] is (code == 0)
