"""A store that is not there is told at once."""

import socket

import pytest

from mlcl.errors import UserError
from mlcl.tracking.network import check_reachable


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http", "postgresql", "postgresql+psycopg"])
def test_a_server_that_does_not_answer_is_named_without_its_password(scheme, tmp_path):
    with pytest.raises(UserError, match="does not answer") as caught:
        check_reachable(f"{scheme}://me:secret@127.0.0.1:{closed_port()}/mlflow", tmp_path)
    assert "secret" not in caught.value.line()
    assert "127.0.0.1" in caught.value.line()


def test_a_database_that_listens_or_has_a_socket_is_left_to_mlflow(tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        check_reachable(f"postgresql+psycopg://me@127.0.0.1:{server.getsockname()[1]}/mlflow", tmp_path)
    check_reachable("postgresql+psycopg:///mlflow?host=/run/postgresql", tmp_path)
    assert (tmp_path / ".tracking.lock").exists()
