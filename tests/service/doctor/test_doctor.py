"""Tests of the doctor's checks around a home, all of which run even if one of them crashes."""

import json
import re
import socket
import threading
from collections import namedtuple
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from doctored import left, look, statuses
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.service.doctor import CHECKS, Finding, Scope, home_checks, is_healthy, run_checks, servers
from mlcl.service.local.processes import free_port


@contextmanager
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def web(pages, login=None):
    """Starts a server of a few pages, which may ask for a login, and yields its address."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self):
            authorized = login is None or self.headers.get("Authorization") == login
            page = pages.get(self.path) if authorized else None
            self.send_response((200 if page else 404) if authorized else 401)
            self.end_headers()
            self.wfile.write((page or "").encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def crash(*_):
    raise OSError("read-only")


def found_and_crashed(_scope):
    yield Finding("a", "b", "c")
    raise OSError("read-only")


MENDS = [Finding("a", "", "", crash), Finding("b", "", "", lambda: None), Finding("c", "", "")]


@pytest.mark.parametrize(
    ("check", "fix", "names", "status"),
    [(found_and_crashed, False, ["a"], "FOUND"), (lambda _: MENDS, True, ["a", "b", "c"], "LEFT")],
)
def test_a_check_or_a_mend_that_crashes_is_a_finding_and_the_others_run(home, check, fix, names, status):
    results = run_checks(Scope(home, ""), {"bad": check, "good": lambda _: []}, fix=fix)
    assert [(result.check, result.what, result.status) for result in results] == [
        ("bad", name, status) for name in (*names, "the check bad")
    ]
    assert "OSError: read-only" in results[-1].why
    assert not is_healthy(results)


def test_a_shared_mend_is_applied_once(home):
    calls = []

    def mend():
        calls.append(1)

    def find(_scope):
        return [] if calls else [Finding("a", "", "", mend), Finding("b", "", "", mend)]

    assert statuses(run_checks(Scope(home, ""), {"x": find}, fix=True)) == ["MENDED"] * 2
    assert calls == [1]


def test_servers_that_do_not_answer_are_named(home, monkeypatch):
    port = free_port()
    monkeypatch.setenv("RAY_ADDRESS", f"ray://127.0.0.1:{port}")
    results = look(home, "services", uri=f"http://me:secret@127.0.0.1:{port}")
    assert len(results) == 2
    assert not any(result.mendable for result in results)
    assert "secret" not in str(results)
    assert not is_healthy(results)


@pytest.mark.parametrize("ray", ["auto", "local", ""])
def test_servers_that_answer_are_not(home, monkeypatch, ray):
    with listening() as port, web({}) as uri:
        monkeypatch.setenv("RAY_ADDRESS", ray or f"127.0.0.1:{port}")
        assert look(home, "services", uri=uri) == []


@pytest.mark.parametrize(
    ("mlflow", "ray", "named"),
    [
        ("3.1.0", "2.60.0", ["MLflow server 3.1.0"]),
        ("3.17.9", "2.60.9", ["Ray server 2.60.9"]),  # Ray's server must have exactly the client's version
        (None, "2.60.0", []),
        ("<html>", "2.60.0", []),
    ],
)
def test_a_server_of_another_version_is_named(home, monkeypatch, mlflow, ray, named):
    monkeypatch.setattr(servers, "ask_cluster", lambda _: (ray, ""))
    monkeypatch.setattr(servers, "_installed_version", {"mlflow": "3.17.2", "ray": "2.60.0"}.get)
    with listening() as port, web({"/version": mlflow} if mlflow else {}) as uri:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        results = look(home, "server-versions", uri=uri)
    assert [result.what for result in results] == named


@pytest.mark.parametrize(
    ("reason", "why", "cure"),
    [
        ("ray.exceptions.AuthenticationError: x", "refuses the token", "RAY_AUTH_TOKEN_PATH"),
        ("no answer in 15 seconds", "not as a Ray cluster does", "correct RAY_ADDRESS"),
    ],
)
def test_a_cluster_that_gives_no_version_is_named(home, monkeypatch, reason, why, cure):
    monkeypatch.setattr(servers, "ask_cluster", lambda _: ("", reason))
    with listening() as port, web({}) as uri:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        (result,) = look(home, "server-versions", uri=uri)
        assert (why in result.why, cure in result.cure) == (True, True)
        monkeypatch.setenv("RAY_ADDRESS", f"http://127.0.0.1:{port}")
        (result,) = look(home, "services", "server-versions", uri=uri)
    assert (result.why, "HOST:PORT" in result.cure) == ("the address of a dashboard", True)


def test_a_server_that_asks_for_a_password_is_given_the_users(home, monkeypatch):
    for name in ("RAY_ADDRESS", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    with web({"/version": "3.1.0"}, login="Basic YWRhOnNlY3JldA==") as uri:  # base64 of ada:secret
        (result,) = look(home, "services", "server-versions", uri=uri)
        assert (result.what, result.why) == (uri, "asks for a user and a password")
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ada")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong")
        (result,) = look(home, "services", "server-versions", uri=uri)
        assert result.why == "refuses this user and password"
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
        (result,) = look(home, "services", "server-versions", uri=uri)
    assert result.what == "MLflow server 3.1.0"


def test_packages_outside_of_their_ranges_are_named(home, monkeypatch):
    assert look(home, "versions") == []
    lines = ["ray[tune]==2.60.*", "optuna>=5,<6", "torch>=2.15", "absent>=1", "other; extra == 'dev'"]
    versions = {"ray": "2.61.0", "optuna": "5.0.0", "torch": "2.15.0+cu130"}
    monkeypatch.setattr(servers.metadata, "requires", lambda _: lines)
    monkeypatch.setattr(servers.metadata, "metadata", lambda _: {"Requires-Python": ">=4"})
    monkeypatch.setattr(servers, "_installed_version", versions.get)
    results = look(home, "versions", fix=True)
    assert [result.what for result in results][1:] == ["ray 2.61.0", "absent is not installed", "ray 2.61.0"]
    assert results[0].what.startswith("Python ")
    assert set(statuses(results)) == {"LEFT", "NOTE"}


def test_packages_of_extras_are_looked_at_where_they_are_installed(home, monkeypatch):
    lines = ["pandas>=2.2; extra == 'train'", "boto3>=1; extra == 'service'", "mlcl[train]; extra == 'sweep'"]
    monkeypatch.setattr(servers.metadata, "requires", lambda _: lines)
    monkeypatch.setattr(servers, "_installed_version", {"pandas": "1.5.3"}.get)
    (result,) = look(home, "versions")
    assert (result.what, result.why) == ("pandas 1.5.3", "mlcl needs pandas>=2.2")


@pytest.mark.parametrize(("name", "version"), [("ray", "2.61.1"), ("mlflow", "3.15.2"), ("mlflow", "4.0.0")])
def test_a_version_whose_private_parts_are_untested_is_a_note(home, monkeypatch, name, version):
    monkeypatch.setattr(servers.metadata, "requires", lambda _: [])
    monkeypatch.setattr(servers, "_installed_version", {name: version}.get)
    results = look(home, "versions", fix=True)
    assert [(result.status, result.what) for result in results] == [("NOTE", f"{name} {version}")]
    assert servers.TESTED[name] in results[0].why
    assert is_healthy(results)


@pytest.mark.parametrize(
    ("total", "free", "count"), [(2**40, 2**38, 0), (2**40, 2**35, 1), (2**33, 2**29, 1), (2**33, 2**32, 0)]
)
def test_a_nearly_full_disk_is_named(home, monkeypatch, total, free, count):
    usage = namedtuple("usage", "total used free")(total, total - free, free)
    monkeypatch.setattr(home_checks.shutil, "disk_usage", lambda _: usage)
    assert len(look(home, "disk")) == count


def test_rays_note_of_a_cluster_that_is_gone_is_removed(home, tmp_path):
    note = tmp_path / "ray" / "ray" / "ray_current_cluster"
    note.parent.mkdir(parents=True)
    assert look(home, "ray-file") == []
    with listening() as port:
        note.write_text(f"127.0.0.1:{port}")
        assert look(home, "ray-file", fix=True) == []
    for text in (f"127.0.0.1:{free_port()}", "nonsense"):
        note.write_text(text)
        assert statuses(look(home, "ray-file")) == ["FOUND"]
        assert note.read_text() == text
        assert statuses(look(home, "ray-file", fix=True)) == ["MENDED"]
        assert not note.exists()


def test_the_command_prints_and_exits_as_it_found(home):
    folder, _ = left(home)
    run = CliRunner().invoke
    command = ["doctor", "--home", str(home)]
    result = run(app, command)
    assert result.exit_code == 3
    assert f"killed: {folder.path}" in result.stdout
    assert "mlcl doctor --fix mends 2" in result.stdout
    document = json.loads(run(app, [*command, "--json"]).stdout)
    assert (document["healthy"], document["fix"]) == (False, False)
    assert [finding["check"] for finding in document["findings"]] == ["killed", "delivery"]
    assert document["checks"] == list(CHECKS)
    fix_result = run(app, [*command, "--fix"])
    assert (fix_result.exit_code, fix_result.stdout.splitlines()[-1]) == (0, "2 mended")
    assert run(app, command).stdout.strip() == "healthy"


def test_the_page_of_the_doctor_names_every_check(root):
    page = (root / "docs" / "doctor.md").read_text()
    names = re.findall(r"^- `([a-z-]+)`: ", page.partition("## What is found")[2], re.MULTILINE)
    assert list(dict.fromkeys(names)) == list(CHECKS)
