"""`mlcl up`, `mlcl down`, and the service's status: what they ask for, what they print, how they exit."""

import json

import pytest
import typer
from typer.testing import CliRunner

from mlcl.cli import service
from mlcl.cli.options import DEFAULT_HOME, Home
from mlcl.service.local import service as local
from mlcl.service.local.servers import servers_of
from mlcl.service.local.service import DownResult, ServerStatus, ServiceStatus, UpResult
from mlcl.service.local.settings import ServiceFolder, UpOptions, read_secret, resolve_settings

URL = "postgresql+psycopg://ada:s3cret@host/mlflow"


def status(home: Home = DEFAULT_HOME, as_json: bool = False) -> None:
    raise typer.Exit(service.print_service_status(home, as_json=as_json))


app = typer.Typer()
for command in (service.up, service.down, status):
    app.command()(command)


class Commands:
    """The command line alone; `wish` is what the service was then asked for."""

    def __init__(self, folder):
        self.home, self.options, self.force, self.error = folder / "home", None, None, None
        self.outside, self.fresh, self.status = [], ("ray", "mlflow"), None

    def up(self, options, home, announce):
        if self.error:
            raise self.error
        self.options = options
        folder = ServiceFolder(home)
        folder.make()
        settings = resolve_settings(options, folder, None)
        announce("starting")
        return UpResult(settings, folder, servers_of(settings, folder), self.fresh, self.outside)

    def down(self, home, force):
        self.force = force
        return DownResult(("ray", "mlflow") if self.fresh else (), 22)

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
    assert commands.options == UpOptions(7001, 7002, 7003, "sqlite", str(tmp_path))


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
    secrets = ("s3cret", read_secret(folder.ray_token), read_secret(folder.mlflow_password))
    assert not [secret for secret in secrets if secret in answer.output]
    assert "starting" in answer.stderr


def test_up_again_says_that_it_is_up(commands):
    commands.fresh = ()
    assert commands("up").stdout.startswith("already up and well\n")


def test_up_as_a_document(commands):
    tree = json.loads(commands("up", "--json", env={"MLCL_STORE": URL}).stdout)
    assert (tree["ray"], tree["mlflow"]) == ("http://127.0.0.1:8265", "http://127.0.0.1:5000")
    assert tree["cluster_file"] == str(ServiceFolder(commands.home).cluster)
    assert "s3cret" not in str(tree)


def test_a_store_with_a_user_alone_may_be_typed(commands):
    assert commands("up", "--store", URL.replace(":s3cret", "")).exit_code == 0
    assert commands.options.store == URL.replace(":s3cret", "")


def test_a_server_that_does_not_come_up_is_a_failure(commands):
    commands.error = local.ServiceError("Ray ended while it started")
    answer = commands("up", "--json")
    assert answer.exit_code == 3
    assert json.loads(answer.stdout)["error"]["problem"] == "Ray ended while it started"
    assert "failed: Ray ended" in answer.stderr


def test_down(commands):
    assert commands("down", "--force").stdout == "ended Ray and MLflow: 22 processes\n"
    assert commands.force is True
    commands.fresh = ()
    answer = commands("down")
    assert (answer.exit_code, answer.stdout, commands.force) == (0, "nothing was running\n", False)
    assert json.loads(commands("down", "--json").stdout) == {"servers": [], "processes": 22}


WELL = ServerStatus("ray", "http://127.0.0.1:8265", "/ray.log", version="2.60.0")
DEAD = ServerStatus("mlflow", "http://127.0.0.1:5000", "/mlflow.log", "is not running", "`mlcl up`")


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
    tree = json.loads(commands("status", "--as-json").stdout)
    assert tree["healthy"] is (code == 0)
