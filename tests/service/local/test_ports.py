"""Ports that are taken, and who listens where others can reach it."""

import os
import socket

import psutil
import pytest

from mlcl.errors import UserError
from mlcl.service.local.ports import check_free, free_port, public_listeners


def listen(address, family=socket.AF_INET, port=0):
    server = socket.socket(family)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen()
    return server


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_who_has_a_port_is_named(address):
    with listen(address) as server:
        with pytest.raises(UserError, match=rf"port .* is taken.*pid {os.getpid()}") as caught:
            check_free("--ray-port", server.getsockname()[1])
        assert caught.value.key == "--ray-port"


def test_a_port_that_was_left_is_free():
    with listen("127.0.0.1") as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            connection, _ = server.accept()
            connection.close()
            client.recv(1)
    check_free("--ray-port", port)
    assert free_port() != port


def test_only_what_others_can_reach_is_told():
    me = [psutil.Process()]
    before = public_listeners(me)
    with listen("127.0.0.1"), listen("::ffff:127.0.0.1", socket.AF_INET6), listen("0.0.0.0") as public:
        added = set(public_listeners(me)) - set(before)
        assert added == {f"{me[0].name()} 0.0.0.0:{public.getsockname()[1]}"}
