"""A head that falls silent is told of, once each time."""

import socket

from patience import until

from mlcl.service.runs import ray_session
from mlcl.service.runs.ray_session import head_monitored, silent


def listening(port=0):
    head = socket.create_server(("127.0.0.1", port))
    return head, head.getsockname()[1]


def test_a_head_that_goes_and_comes_back_is_told_of(monkeypatch):
    monkeypatch.setattr(ray_session, "LOOK_EVERY", 0.01)
    heard = []
    head, port = listening()
    with head_monitored(f"127.0.0.1:{port}", heard.append):
        head.close()
        until(lambda: len(heard) == 1)
        head, _ = listening(port)
        with head:
            until(lambda: len(heard) == 2)
    assert "does not answer" in heard[0]
    assert "the same command goes on" in heard[0]
    assert "answers again" in heard[1]


def test_who_answers_is_not_silent():
    head, port = listening()
    with head:
        assert not silent(f"127.0.0.1:{port}")
    assert "refused" in silent(f"127.0.0.1:{port}")
