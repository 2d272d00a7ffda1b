"""Tests that the end of a sweep is posted once with its verdict, and that errors show no secret."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from reproduced import Tables

from mlcl.config import dump_job, job_hash, load_job
from mlcl.config.cluster import Reference
from mlcl.errors import UserError
from mlcl.service.engine.progress import notify, resolve_target
from mlcl.tracking import State

SPACE = "space: {objective.heads.*.temperature: {log_float: [0.05, 1.0]}}\nsearch: {scheduler: none}"


@pytest.fixture
def hook():
    """Starts a local server that stores posted bodies in `bodies` and answers with `status`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            server.bodies.append((self.headers["Content-Type"], json.loads(self.rfile.read(length))))
            self.send_response(server.status)
            self.end_headers()

        def log_message(self, *words):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.bodies, server.status = [], 200
    server.url = f"http://127.0.0.1:{server.server_address[1]}/secret-path"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def with_notify(job, target):
    return load_job(dump_job(job), {"tracking.notify": target})


def test_the_end_of_a_sweep_is_posted_with_its_verdict(world, job, hook, monkeypatch):
    monkeypatch.setenv("MLCL_HOOK", hook.url)
    notified_job = with_notify(job, {"env": "MLCL_HOOK"})
    assert job_hash(notified_job) == job_hash(job)
    report = world.run(world.plan(notified_job, SPACE, trials=4, seeds=2))
    ((content_type, body),) = hook.bodies
    assert (content_type, body["state"], body["id"], body["name"]) == (
        "application/json", str(State.COMPLETE), report.id, report.name
    )  # fmt: skip
    assert body["verdict"] == "\n".join(verdict.sentence for verdict in report.verdicts)
    assert body["text"] == "\n".join(filter(None, (f"sweep {report.name} COMPLETE", body["verdict"])))
    assert "secret-path" not in (report.folder / "sweep.json").read_text()
    world.run(world.plan(notified_job, SPACE, trials=4, seeds=2))  # nothing is trained
    assert len(hook.bodies) == 1


def test_a_table_and_a_failed_end_are_posted(tmp_path, monkeypatch, hook, tiny):
    tables = Tables(tmp_path / "home", monkeypatch, tiny)
    overrides = {"tracking.notify": hook.url}
    first_report = tables.run(tables.plan())
    report = tables.run(tables.plan(overrides=overrides, seeds=3))
    assert [body["state"] for _, body in hook.bodies] == [str(report.state)]
    assert hook.bodies[0][1]["kind"] == "table"
    assert hook.bodies[0][1]["verdict"] == "\n".join(report.conclusions) != ""
    plan = tables.plan(overrides=overrides)
    assert plan.tolerance("Acc") == tables.plan().tolerance("Acc") is not None
    assert tables.run(plan).id == first_report.id
    monkeypatch.setattr(tables.formula, "figures", lambda job: 1 / 0)
    failed_report = tables.run(tables.plan(overrides=overrides, seeds=4))
    assert hook.bodies[-1][1]["state"] == str(failed_report.state) != "COMPLETE"


def test_a_failure_is_said_without_the_url_and_changes_nothing(world, job, hook):
    hook.status = 500
    report = world.run(world.plan(with_notify(job, hook.url), SPACE, trials=2))
    assert (report.state, len(hook.bodies)) == (State.COMPLETE, 1)
    notes = []
    notify(hook.url, {}, notes.append)
    hook.status = 302
    notify(hook.url, {}, notes.append)
    assert notes.pop() == "127.0.0.1 is not notified: Found"
    hook.server_close()
    notify("http://127.0.0.1:9/secret-path", {}, notes.append)
    assert notes[0] == "127.0.0.1 is not notified: Internal Server Error"
    assert notes[1].startswith("127.0.0.1 is not notified: ")
    assert not any("secret-path" in text for text in notes)


def test_a_missing_secret_is_refused_before_anything_starts(world, job, monkeypatch):
    monkeypatch.delenv("MLCL_HOOK", raising=False)
    with pytest.raises(
        UserError, match=r"key tracking.notify: the variable is not set, or is empty; found: MLCL_HOOK"
    ):
        world.run(world.plan(with_notify(job, {"env": "MLCL_HOOK"}), SPACE, trials=2))
    assert not list((world.home / "sweeps").glob("mlcl-*"))


@pytest.mark.parametrize(
    "target",
    [
        "ftp://host/x",
        "hooks.example.org",
        "http://user:word@host/x",
        "http://[x",
        "http://h/a b",
        "http://h:x",
        5,
    ],
)
def test_what_is_no_url_is_refused(job, target):
    with pytest.raises(UserError, match=r"tracking\.notify"):
        with_notify(job, target)


@pytest.mark.parametrize("text", ["very-secret", "http://[very-secret", "http://user:very-secret@host"])
def test_a_secret_that_is_no_url_is_not_shown(monkeypatch, text):
    monkeypatch.setenv("MLCL_HOOK", text)
    with pytest.raises(UserError, match=r"the secret is not an http\(s\) URL") as error:
        resolve_target(Reference(env="MLCL_HOOK"))
    assert "very-secret" not in error.value.line()
    assert resolve_target(None) is None
