"""Tests of the local service with stand-ins for Ray and MLflow, in real processes with real ports."""

import json
import os
import signal
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import local_servers
import psutil
import pytest
from patience import until

from mlcl.config.cluster import load_cluster
from mlcl.errors import MachineError, UserError
from mlcl.service.local import service as local
from mlcl.service.local.processes import free_port, process_tree, start_process
from mlcl.service.local.servers import Server, ServerProblem, create_ray_scratch, mlflow_server
from mlcl.service.local.service import mlflow_address, read_state, service_status
from mlcl.service.local.settings import ServiceFolder, read_secret, resolve_settings, write_state
from mlcl.service.ray import folder as ray_folder

SCRIPT = Path(local_servers.__file__)
STAND_IN = ("-I", "-S", str(SCRIPT))
"""The arguments of Python for a stand-in. Python starts sooner without site-packages."""


class Service:
    """A wrapper of the commands `up` and `down` on one home."""

    def __init__(self, home):
        self.home, self.folder = home, ServiceFolder(home)
        ports = set()
        while len(ports) < 3:  # the system may return the same port twice
            ports.add(free_port())
        self.options = dict(zip(("ray_port", "dashboard_port", "mlflow_port"), ports, strict=True))

    def up(self, **options):
        return local.start_service(options or self.options, self.home)

    def down(self, **how):
        return local.end_service(self.home, **how)

    def roots(self):
        state = read_state(self.folder)
        return {name: server.processes[0].pid for name, server in state.servers.items()}

    def members(self):
        """Returns all processes of the service."""
        state = read_state(self.folder)
        return [process for server in state.servers.values() for process in process_tree(server.processes)]

    def kill(self, name):
        pid = self.roots()[name]
        os.kill(pid, signal.SIGKILL)
        until(lambda: not lives(psutil.Process(pid)))

    def wrong(self):
        return {server.name: server.wrong for server in service_status(self.home).servers}

    def touch(self, name, text=""):
        self.folder.path.mkdir(parents=True, exist_ok=True)
        (self.folder.path / name).write_text(text)


def lives(member):
    try:
        return member.is_running() and member.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def service(tmp_path, monkeypatch):
    module = ModuleType("flask_wtf")
    module.__spec__ = ModuleSpec("flask_wtf", None)
    monkeypatch.setitem(sys.modules, "flask_wtf", module)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(ray_folder, "MAX_SOCKET", 4096)  # the stand-in makes no sockets
    monkeypatch.setattr("mlcl.service.local.servers.make_tables", lambda *_: None)
    monkeypatch.setattr(local, "LOOK_EVERY", 0.05)
    monkeypatch.setattr("mlcl.service.local.processes.LOOK_EVERY", 0.02)

    def start_stand_in(command, environment, log):
        words = [word for argument in command for word in argument.split("=")]
        port = words[words.index("--dashboard-port" if log.stem == "ray" else "--port") + 1]
        return start_process([sys.executable, *STAND_IN, log.stem, port], environment, log)

    monkeypatch.setattr(local, "start_process", start_stand_in)
    stand_in = Service(tmp_path / "home")
    yield stand_in
    stand_in.down(force=True)


def test_up_starts_both_once_and_the_cluster_file_leads_to_them(service):
    assert mlflow_address(service.home) is None
    first, roots = service.up(), service.roots()
    address = f"http://127.0.0.1:{service.options['mlflow_port']}"
    assert (first.started, mlflow_address(service.home)) == (("ray", "mlflow"), address)
    assert len(service.members()) == 4
    second = service.up(mlflow_port=service.options["mlflow_port"])
    assert (second.started, service.roots()) == ((), roots)
    status = service_status(service.home)
    assert (status.healthy, status.nodes, status.cpus, status.gpus) == (True, 1, 4.0, 1.0)
    assert [server.version for server in status.servers] == ["2.60.0", "3.17.2"]
    cluster = load_cluster(service.folder.cluster)
    assert cluster.ray.address == f"http://127.0.0.1:{service.options['dashboard_port']}"
    assert cluster.mlflow.uri == address
    assert (cluster.storage, cluster.python) == (str(service.home), sys.executable)
    assert cluster.ray.token.resolve("ray.token") == read_secret(service.folder.ray_token)
    assert cluster.mlflow.password.resolve("p") == read_secret(service.folder.mlflow_password)


def test_down_ends_all_and_keeps_what_is_kept(service):
    service.up()
    members = service.members()
    scratch = Path(read_state(service.folder).servers["ray"].scratch)
    (scratch / "session_2026/logs").mkdir(parents=True)
    (scratch / "session_2026/logs/gcs.out").touch()
    assert service.down().processes == 4
    assert not any(lives(member) for member in members)
    assert not scratch.exists()
    assert (service.folder.ray_logs / "session_2026/gcs.out").exists()
    names = "ray.token mlflow.user mlflow.password mlflow-users.db mlflow.ini ray.log mlflow.log"
    assert {path.name for path in service.folder.path.iterdir()} == {*names.split(), ".lock", "ray-logs"}
    assert service.down().servers == ()
    assert not service_status(service.home).healthy
    assert mlflow_address(service.home) is None


@pytest.mark.parametrize(("dead", "alive"), [("ray", "mlflow"), ("mlflow", "ray")])
def test_up_mends_a_dead_half(service, dead, alive):
    service.up()
    before, members = service.roots(), service.members()
    service.kill(dead)
    assert service.wrong() == {dead: "is not running", alive: ""}
    assert service.up().started == (dead,)
    after = service.roots()
    assert after[alive] == before[alive]
    # The dead server's child was ended as well, because it could still hold the port.
    assert sum(lives(member) for member in members) == 2
    assert service.wrong() == {dead: "", alive: ""}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("mlflow.dies", r"MLflow ended while it started.*no room for it here"),
        ("ray.open", r"Ray at .* answers without a secret"),
    ],
)
def test_a_start_that_fails_leaves_nothing(service, tmp_path, fault, said):
    service.touch(fault)
    with pytest.raises(MachineError, match=said):
        service.up()
    assert read_state(service.folder) is None
    assert not list(tmp_path.glob("mlcl-ray-*"))
    assert not [process for process in psutil.process_iter() if str(SCRIPT) in words(process)]


def words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_mend_that_fails_leaves_the_other_half(service):
    service.up()
    service.kill("mlflow")
    service.touch("mlflow.dies")
    with pytest.raises(MachineError):
        service.up()
    assert service.wrong() == {"ray": "", "mlflow": "is not running"}


def test_a_secret_that_was_changed_is_named(service):
    service.up()
    service.folder.mlflow_password.write_text("another\n")
    assert "refuses the secret in" in service.wrong()["mlflow"]
    with pytest.raises(MachineError, match=r"write the present one into .*mlflow\.password"):
        service.up()
    assert len(service.members()) == 4


def test_an_interrupted_start_leaves_nothing(service, monkeypatch):
    members = []

    def interrupted(_self):
        members.extend(service.members())
        os.kill(os.getpid(), signal.SIGINT)
        return ServerProblem("does not answer", "")

    monkeypatch.setattr(Server, "problem", interrupted)
    with pytest.raises(KeyboardInterrupt):
        service.up()
    assert members
    assert not any(lives(member) for member in members)
    assert read_state(service.folder) is None


@pytest.mark.parametrize("alive", [set(), {"ray"}, {"ray", "mlflow"}])
@pytest.mark.parametrize("mends", [True, False])
def test_a_server_that_dies_while_the_other_is_waited_for_is_started_again(
    service, monkeypatch, alive, mends
):
    """Tests that the dead server is started again, or ended if it then does not work."""
    service.up()
    for name in {"ray", "mlflow"} - alive:
        service.kill(name)
    problem, pending_kills = Server.problem, ["ray"]

    def asked(self):
        if pending_kills and self.name == "mlflow":
            service.kill(pending_kills.pop())
            if not mends:
                service.touch("ray.open")
        return problem(self)

    monkeypatch.setattr(Server, "problem", asked)
    if mends:
        assert set(service.up().started) == {"ray"} | {"ray", "mlflow"} - alive
        assert service.wrong() == {"ray": "", "mlflow": ""}
        return
    with pytest.raises(MachineError, match="answers without a secret"):
        service.up()
    state = read_state(service.folder)
    assert set(state.servers if state else ()) == alive - {"ray"}
    head = [*STAND_IN, "ray", str(service.options["dashboard_port"])]
    assert not [process for process in psutil.process_iter() if words(process)[1:] == head]


def test_a_taken_port_is_told_before_anything_starts(service):
    service.up()
    other = Service(service.home.with_name("other"))
    other.options = other.options | {"dashboard_port": service.options["dashboard_port"]}
    with pytest.raises(UserError, match=r"is taken; found: python.* \(pid \d+\)") as error:
        other.up()
    assert error.value.key == "--dashboard-port"
    assert not other.folder.state.exists()


def test_an_empty_variable_names_no_folder_for_rays_files(monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", "")
    scratch = Path(create_ray_scratch(pytest.fail))
    scratch.rmdir()
    assert scratch.parent == Path("/tmp")


def test_a_folder_that_is_too_long_for_rays_sockets_is_replaced_or_refused(service, monkeypatch, tmp_path):
    messages = []
    monkeypatch.setattr(ray_folder, "MAX_SOCKET", 107)
    monkeypatch.setattr(ray_folder, "SHORT", tmp_path / "short")
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")
    Path(create_ray_scratch(pytest.fail)).rmdir()
    (tmp_path / f"{80 * 'x'}").mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / f"{80 * 'x'}"))
    assert Path(create_ray_scratch(messages.append)).parent == tmp_path / "short"
    assert len(messages) == 1
    (tmp_path / "file").touch()
    monkeypatch.setattr(ray_folder, "SHORT", tmp_path / "file" / "short")
    with pytest.raises(UserError, match=r"RAY_TMPDIR.*too long for the sockets of Ray.*25 characters"):
        service.up()
    assert not service.folder.state.exists()


def test_down_refuses_while_jobs_run(service):
    service.up()
    jobs = [
        {"submission_id": "mlcl-a", "job_id": None, "status": "RUNNING"},
        {"submission_id": None, "job_id": "02000000", "status": "PENDING"},
        {"submission_id": "mlcl-b", "job_id": None, "status": "SUCCEEDED"},
    ]
    service.touch("jobs.json", json.dumps(jobs))
    assert service_status(service.home).jobs == ("mlcl-a", "02000000")
    with pytest.raises(UserError, match=r"jobs run: mlcl-a, 02000000; allowed: .*--force"):
        service.down()
    assert len(service.members()) == 4
    assert service.down(force=True).processes == 4


COMMAND = """import pathlib, signal, socket, sys, time
def stop(*_):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))):
        pathlib.Path(sys.argv[2]).write_text("stopped while Ray answered")
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
print("here", flush=True)
time.sleep(1000)"""


def test_down_stops_the_commands_of_jobs_before_ray(service, tmp_path):
    service.up()
    port, file, log = str(service.options["dashboard_port"]), tmp_path / "stopped", tmp_path / "log"
    command = [sys.executable, "-I", "-S", "-c", COMMAND, port, str(file), "mlcl.cli.job_entrypoint"]
    process = start_process(command, dict(os.environ), log)
    until(lambda: log.read_text() == "here\n")
    state = read_state(service.folder)
    ray = state.servers["ray"]
    state.servers["ray"] = replace(ray, processes=(*ray.processes, process))
    write_state(service.folder, state)
    assert set(service.down(force=True).servers) == {"ray", "mlflow"}
    assert file.read_text() == "stopped while Ray answered"


def test_down_refuses_where_ray_does_not_tell(service):
    service.up()
    service.folder.ray_token.write_text("another\n")
    with pytest.raises(UserError, match="does not report"):
        service.down()
    service.kill("ray")
    assert set(service.down().servers) == {"ray", "mlflow"}


def test_strangers_with_our_numbers_are_left_alone(service):
    service.up()
    service.down()
    other_process = psutil.Popen(["sleep", "1000"])
    process = {"pid": other_process.pid, "created": other_process.create_time() - 3600}
    server = {"processes": [process], "scratch": "", "started": ""}
    settings = {"store": "sqlite:////a.db", "artifacts": "/a"}
    service.touch("state.json", json.dumps({"settings": settings, "servers": {"ray": server}}))
    assert service.wrong()["ray"] == "is not running"
    assert service.down().servers == ()
    assert other_process.poll() is None
    other_process.kill()
    other_process.wait()


def test_secrets_stay_where_they_belong(service, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "not-for-you")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-for-you")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    service.up()
    token, password = read_secret(service.folder.ray_token), read_secret(service.folder.mlflow_password)
    for member in service.members():
        environment = member.environ()
        assert "not-for-you" not in environment.values()
        assert environment["OMP_NUM_THREADS"] == "1"
        assert token not in environment.values()
        assert not {token, password} & set(member.cmdline())
    assert not any(word in service.folder.state.read_text() for word in (token, password))
    # Workers and jobs inherit Ray's environment, so it must not contain the password.
    (ray,) = [member for member in service.members() if member.pid == service.roots()["ray"]]
    assert password not in ray.environ().values()


def test_a_store_s_password_is_for_mlflow_alone(service, monkeypatch, tmp_path):
    monkeypatch.setattr("mlcl.service.local.servers.check_storage", lambda settings: None)
    url = "postgresql+psycopg://ada:s3cret@host/db"
    service.options["store"] = url
    service.up()
    pids = [member.pid for member in service.members() if url in member.environ().values()]
    assert service.roots()["mlflow"] in pids
    assert service.roots()["ray"] not in pids
    assert service_status(service.home).store == "postgresql+psycopg://ada:***@host/db"
    files = [path for path in service.home.rglob("*") if path.is_file()]
    assert not [path for path in files if b"s3cret" in path.read_bytes()]


@pytest.mark.parametrize(
    ("options", "root"),
    [
        ({"artifacts": "/kept"}, "file:///kept"),
        ({"artifacts": "s3://lab/mlflow"}, None),
        ({"artifacts": "/kept", "store": "postgresql://ada@host/db"}, None),
    ],
)
def test_artifacts_lie_openly_where_commands_may_open_the_store_themselves(service, options, root):
    server = mlflow_server(resolve_settings(options, service.folder), service.folder)
    assert server.environment.get("MLFLOW_DEFAULT_ARTIFACT_ROOT") == root


def test_databases_that_a_kill_left_half_made_are_made_whole(service, monkeypatch):
    monkeypatch.undo()  # undoes the patches, so that real tables are created
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    server = mlflow_server(resolve_settings({}, service.folder), service.folder)
    service.folder.make()
    (service.home / "mlflow.db").touch()
    with closing(sqlite3.connect(service.folder.mlflow_users)) as users:
        users.execute("CREATE TABLE users (id INTEGER)")
    server.prepare()
    assert service.folder.mlflow_users.stat().st_size == 0  # MLflow fills the empty file itself
    with closing(sqlite3.connect(service.home / "mlflow.db")) as store:
        location = f"file://{service.home}/artifacts/0"
        assert store.execute("SELECT artifact_location FROM experiments").fetchall() == [(location,)]
    with closing(sqlite3.connect(service.folder.mlflow_users)) as users:
        users.execute("CREATE TABLE users (id INTEGER)")
        users.execute("INSERT INTO users VALUES (1)")
        users.commit()
    server.prepare()
    assert service.folder.mlflow_users.stat().st_size > 0


def test_what_keeps_a_command_from_starting_is_named(service, monkeypatch):
    service.folder.make()
    with service.folder.lock(), pytest.raises(UserError, match="is running"):
        service.up()
    monkeypatch.setitem(sys.modules, "flask_wtf", None)
    with pytest.raises(UserError, match=r"mlcl\[service\]"):
        service.up()
    assert not service.folder.state.exists()
    service.touch("state.json", "{")
    for command in (service.up, service.down, lambda: service_status(service.home)):
        with pytest.raises(UserError, match=r"state\.json: cannot be read"):
            command()
    service.folder.state.unlink()
