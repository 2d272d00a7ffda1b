"""Tests of Ray sessions: clusters that refuse a command or stop answering, busy machines, and folders."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import ray
from patience import until
from ray._private import services, utils
from ray._private.runtime_env import uv_runtime_env_hook
from ray._private.worker import _maybe_modify_runtime_env
from ray_folder import rays_own_folder

from mlcl.errors import MachineError, UserError
from mlcl.service.ray import address, folder, session
from mlcl.service.ray.address import ask_cluster
from mlcl.service.ray.folder import default_folder, ensure_token, enter_workdir, short_folder
from mlcl.service.ray.private import ImportPath
from mlcl.service.ray.session import monitor_head, ray_session
from mlcl.tracking.network import connection_error


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("no GCS.\nray.exceptions.AuthenticationError: x", ("refuses the token", "/etc/ray.token")),
        ("Traceback\nRpcError: another version", ("RAY_ADDRESS", "RpcError: another version")),
        (None, ("RAY_ADDRESS", "no Ray cluster answers")),
    ],
)
def test_a_cluster_that_refuses_a_command_is_named(monkeypatch, tmp_path, cause, words):
    def init(**_):
        raise ConnectionError("Failed to connect to Ray cluster") from RuntimeError(cause)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(session, "ask_cluster", lambda _: ("2.60.0", ""))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/etc/ray.token")
    with socket.create_server(("127.0.0.1", 0)) as head:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{head.getsockname()[1]}")
        if cause is None:
            head.close()
        with pytest.raises(UserError) as error, ray_session(tmp_path):
            pass
    assert [word for word in words if word not in error.value.line()] == []


@pytest.mark.parametrize(
    ("given", "there"), [("", False), ("local", False), ("auto", True), ("head:6379", True)]
)
def test_a_ray_of_the_commands_own_is_no_cluster(monkeypatch, given, there):
    monkeypatch.setenv("RAY_ADDRESS", given)
    assert address.on_cluster() is there


REFUSED = "Traceback\nray.exceptions.AuthenticationError: RPC error: InvalidAuthToken"
WITHOUT = "_raylet.so(_ZN3ray3rpc25AuthenticationTokenLoader8GetTokenEb+0x420)\n_start"  # a crash of Ray
SILENT = "Traceback\nray.exceptions.RpcError: Timed out while waiting for GCS to become available."


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (WITHOUT, "refuses the token; found: none; allowed: a file with"),
        (REFUSED, "refuses the token; found: none; allowed: a file with"),
        (SILENT, "(ray.exceptions.RpcError: Timed out"),
    ],
)
def test_a_cluster_is_asked_before_it_is_joined(monkeypatch, tmp_path, reason, words):
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("joined"))
    monkeypatch.setattr(session, "ask_cluster", lambda _: ("", reason))
    with socket.create_server(("127.0.0.1", 0)) as head:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{head.getsockname()[1]}")
        with pytest.raises(UserError) as error, ray_session(tmp_path):
            pass
    assert words in error.value.line()


def test_what_answers_like_no_cluster_is_known_in_seconds(monkeypatch):
    monkeypatch.setattr(address, "ASK_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as head:
        answer = ask_cluster(f"127.0.0.1:{head.getsockname()[1]}")
    assert answer == ("", "no answer in 1 seconds")


@pytest.mark.parametrize(
    ("given", "running", "latest", "line"),
    [
        ("http://head:8265", (), None, "the address of a dashboard; found: http://head:8265; allowed: HOST"),
        ("https://head:8265", (), None, "the address of a dashboard"),
        ("auto", (), None, "no Ray cluster runs on this machine; found: auto; allowed: HOST:PORT"),
        # The address of a Ray cluster that has ended.
        ("auto", (), "127.0.0.1:6", "no Ray cluster runs on this machine"),
        ("auto", ("127.0.0.1:6", "127.0.0.1:7"), None, "several Rays run on this machine; found: auto"),
        ("auto", ("127.0.0.1:6", "127.0.0.1:7"), "127.0.0.1:8", "several Rays run on this machine"),
        ("head", (), None, "not the address of a Ray cluster; found: head; allowed: HOST:PORT"),
    ],
)  # fmt: skip
def test_an_address_that_names_no_one_cluster_is_refused(monkeypatch, tmp_path, given, running, latest, line):
    monkeypatch.setattr(session, "running_heads", lambda: (set(running), latest))
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("joined"))
    monkeypatch.setenv("RAY_ADDRESS", given)
    with pytest.raises(UserError) as error, ray_session(tmp_path):
        pass
    assert error.value.line().startswith(f"key RAY_ADDRESS: {line}")


@pytest.mark.parametrize("others", [(), ("127.0.0.1:7",)])
def test_auto_is_the_one_that_runs_or_that_was_started_last(monkeypatch, tmp_path, others):
    addresses = []
    monkeypatch.setattr(session, "ask_cluster", lambda _: ("2.60.0", ""))
    monkeypatch.setattr(ray, "init", lambda **options: addresses.append(options["address"]))
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    without_cluster(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as head:
        head_address = f"127.0.0.1:{head.getsockname()[1]}"
        heads = ({head_address, *others}, head_address if others else None)
        monkeypatch.setattr(session, "running_heads", lambda: heads)
        with ray_session(tmp_path):
            pass
    assert addresses == [head_address]


def test_a_cluster_that_takes_long_to_join_is_announced(monkeypatch, tmp_path):
    messages = []
    monkeypatch.setattr(session, "SAY_EVERY", 0.01)
    monkeypatch.setattr(session, "ask_cluster", lambda _: ("2.60.0", ""))
    monkeypatch.setattr(ray, "init", lambda **_: until(lambda: len(messages) >= 2))
    without_cluster(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as head:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{head.getsockname()[1]}")
        with ray_session(tmp_path, announce=messages.append):
            pass
    assert messages[0].startswith("still joining the Ray cluster at 127.0.0.1:")


def without_cluster(monkeypatch):
    monkeypatch.setattr(session, "check_shared", lambda _: None)
    monkeypatch.setattr(session, "monitor_head", lambda *_: nullcontext())
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address=""))


@pytest.mark.parametrize("by_ray", [True, False])
def test_a_sigterm_while_ray_starts_reaches_the_command(monkeypatch, tmp_path, by_ray):
    received = []

    def init(**_):
        replace = utils.set_sigterm_handler if by_ray else partial(signal.signal, signal.SIGTERM)
        replace(lambda *_: sys.exit(signal.SIGTERM))
        signal.raise_signal(signal.SIGTERM)
        return SimpleNamespace(address_info={"session_dir": str(tmp_path / "session")})

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    without_cluster(monkeypatch)
    if by_ray:  # the signal reaches a thread that does not block it
        monkeypatch.setattr(session, "HELD", ())
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with ray_session(tmp_path):
            assert received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_ray_prints_while_it_ends_is_no_result(monkeypatch, tmp_path, capsys):
    @contextmanager
    def local(*_):
        yield
        sys.stdout.write("(raylet) Raylet is terminated\n")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(session, "local_ray", local)
    without_cluster(monkeypatch)
    with ray_session(tmp_path):
        sys.stdout.write("(raylet) A worker died\n")
    sys.stdout.write("result\n")
    stderr = "(raylet) A worker died\n(raylet) Raylet is terminated\n"
    assert tuple(capsys.readouterr()) == ("result\n", stderr)


class Busy:
    """A machine on which the first starts of Ray fail and leave a process; Ray's files are in `session`."""

    def __init__(self, failures, session):
        self.failures, self.left, self.masks, self.folders, self.session = failures, [], [], [], session
        self.addresses = []

    def init(self, **how):
        assert isinstance(how["job_config"], ImportPath)
        self.folders.append(how["_temp_dir"])
        self.masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        self.addresses.append(services.get_node_ip_address())
        self.left.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        if len(self.left) <= self.failures:
            raise RuntimeError("The current node timed out during startup.\nThis could happen")
        (self.session / "logs").mkdir(parents=True)
        (self.session.parent / "session_latest").symlink_to(self.session)
        return SimpleNamespace(address_info={"session_dir": str(self.session)})


@pytest.fixture
def busy(monkeypatch, request, tmp_path):
    busy = Busy(request.param, tmp_path / "ray" / "session_1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", busy.init)
    yield busy
    assert not any(psutil.pid_exists(process.pid) for process in busy.left)


@pytest.mark.parametrize("busy", [1], indirect=True)
def test_a_start_that_fails_is_tried_again_and_leaves_nothing(busy, monkeypatch, tmp_path):
    messages = []
    without_cluster(monkeypatch)
    with ray_session(tmp_path, announce=messages.append):
        assert [psutil.pid_exists(process.pid) for process in busy.left] == [False, True]
    assert not list((tmp_path / "ray").iterdir())
    assert len(messages) == 1
    assert "it is started again" in messages[0]
    assert all({signal.SIGTERM, signal.SIGHUP} <= mask for mask in busy.masks)
    assert busy.addresses == ["127.0.0.1", "127.0.0.1"]  # Ray opens no port to other machines
    assert not {signal.SIGTERM, signal.SIGHUP} & signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize("busy", [0], indirect=True)
def test_rays_files_stay_where_an_error_ends_the_command(busy, monkeypatch, tmp_path):
    without_cluster(monkeypatch)
    with pytest.raises(RuntimeError, match="why"), ray_session(tmp_path):
        raise RuntimeError("why")
    assert (busy.session / "logs").exists()


@pytest.mark.parametrize("busy", [9], indirect=True)
def test_a_machine_that_is_too_busy_is_one_line(busy, tmp_path):
    with pytest.raises(MachineError) as error, ray_session(tmp_path):
        pass
    assert "Ray did not start in 2 attempts (load " in str(error.value)
    assert "\n" not in str(error.value)
    assert len(busy.left) == 2


@pytest.mark.parametrize("variable", ["TMPDIR", "RAY_TMPDIR"])
def test_a_folder_that_is_too_long_for_sockets_is_replaced_or_refused(tmp_path, monkeypatch, variable):
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv(variable, "/t")
    assert default_folder() == rays_own_folder() == "/t/ray"
    assert short_folder(default_folder(), pytest.fail) is None
    monkeypatch.setenv(variable, "/" + 60 * "t")
    monkeypatch.setattr(folder, "SHORT", tmp_path / "ray")
    messages = []
    assert short_folder(default_folder(), messages.append) == str(tmp_path / "ray")
    assert len(messages) == 1
    (tmp_path / "file").touch()
    monkeypatch.setattr(folder, "SHORT", tmp_path / "file" / "ray")
    with pytest.raises(UserError, match=f"{variable}.*too long for the sockets of Ray.*39 characters"):
        short_folder(default_folder(), messages.append)


def test_a_process_enters_the_folder_of_the_command_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    for name in ("there", "not here"):
        enter_workdir(str(tmp_path / name))
        assert Path.cwd() == tmp_path / "there"


@pytest.mark.parametrize("imports", [False, True])
def test_processes_of_ray_import_from_the_current_folder_as_the_command_does(monkeypatch, tmp_path, imports):
    monkeypatch.setattr(sys, "path", [*sys.path, *([str(tmp_path)] * imports)])
    job = ImportPath()
    job._py_driver_sys_path.append(str(tmp_path))  # Ray adds the current folder in this way
    assert list(job._get_proto_job_config().py_driver_sys_path) == [str(tmp_path)] * imports


def test_processes_of_ray_have_this_python_after_uv_run_too(monkeypatch, tmp_path):
    environments = []
    run = ["uv", "run", "--extra", "train", "mlcl", "sweep"]
    monkeypatch.setattr(uv_runtime_env_hook, "_get_uv_run_cmdline", lambda: run)
    without_cluster(monkeypatch)
    monkeypatch.chdir(tmp_path)

    @contextmanager
    def local_ray(*_):
        environments.append(_maybe_modify_runtime_env({}, False))
        yield

    monkeypatch.setattr(session, "local_ray", local_ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with ray_session(tmp_path):
        pass
    assert environments == [{}]
    assert "uv run" in _maybe_modify_runtime_env({"working_dir": str(tmp_path)}, False)["py_executable"]


def test_ray_gets_a_token_where_the_users_folder_takes_none(monkeypatch, tmp_path):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("HOME", str(tmp_path))
    ensure_token()
    assert os.environ["RAY_AUTH_TOKEN"] == ""
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    ensure_token()
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


def listening(port=0):
    head = socket.create_server(("127.0.0.1", port))
    return head, head.getsockname()[1]


def test_a_head_that_stops_answering_and_answers_again_is_announced(monkeypatch):
    monkeypatch.setattr(session, "LOOK_EVERY", 0.01)
    messages = []
    head, port = listening()
    assert not connection_error("127.0.0.1", port)
    with monitor_head(f"127.0.0.1:{port}", messages.append):
        head.close()
        until(lambda: len(messages) == 1)
        assert "refused" in connection_error("127.0.0.1", port)
        head, _ = listening(port)
        with head:
            until(lambda: len(messages) == 2)
    assert "does not answer" in messages[0]
    assert "the same command goes on" in messages[0]
    assert "answers again" in messages[1]
