"""A session on a cluster that does not let a command in."""

import socket

import pytest
import ray

from mlcl.errors import UserError
from mlcl.service.runs.ray_session import ray_session


def refused(monkeypatch, tmp_path, cause):
    def init(**_):
        raise ConnectionError("Failed to connect to Ray cluster") from RuntimeError(cause)

    monkeypatch.setattr(ray, "init", init)
    with socket.create_server(("127.0.0.1", 0)) as head:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{head.getsockname()[1]}")
        with pytest.raises(UserError) as error, ray_session(tmp_path):
            pass
    return error.value.line()


def test_a_refused_token_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/etc/ray.token")
    cause = "Failed to connect to GCS.\nray.exceptions.AuthenticationError: InvalidAuthToken"
    line = refused(monkeypatch, tmp_path, cause)
    assert "refuses the token" in line
    assert "/etc/ray.token" in line


def test_another_reason_is_told(monkeypatch, tmp_path):
    line = refused(monkeypatch, tmp_path, "Traceback\nRpcError: another version")
    assert "RAY_ADDRESS" in line
    assert "RpcError: another version" in line


def test_nobody_at_the_address(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(UserError, match="no Ray cluster answers"), ray_session(tmp_path):
        pass
