import socket

import pytest


@pytest.fixture(scope="module", autouse=True)
def _one_thread(one_thread):
    """Runs all tests of networks in one thread."""


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("touched the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
