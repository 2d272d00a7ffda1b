import socket

import pytest


@pytest.fixture(scope="module", autouse=True)
def _one_thread(one_thread):
    """All tests of networks run in one thread."""


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("touched the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
