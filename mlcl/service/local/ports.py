"""Finds free ports, the owner of a port, and processes that listen on public addresses."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address

import psutil

from mlcl.errors import UserError

HOST = "127.0.0.1"
"""The address at which the service listens."""


def check_free(key: str, port: int) -> None:
    """Raises UserError with the owner of the port where it is taken."""
    if _takes(port):
        raise UserError(f"port {port} is taken", key=key, found=_owner(port), allowed="a port that is free")


def free_port() -> int:
    """A port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def public_listeners(processes: Iterable[psutil.Process]) -> list[str]:
    """The processes that other machines may reach, as `name address:port`."""
    found = []
    for process in processes:
        try:
            listening = [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
            name = process.name()
        except psutil.Error:
            continue
        places = [each.laddr for each in listening if not _is_loopback(each.laddr.ip)]
        found += [f"{name} {place.ip}:{place.port}" for place in places]
    return sorted(set(found))


def _takes(port: int) -> bool:
    with socket.socket() as probe:
        # Closed connections keep a port for a minute, which does not matter here.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def _owner(port: int) -> str:
    """Name and id of the process that listens at the port; the system may hide another user's."""
    try:
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port and each.pid:
                return f"{psutil.Process(each.pid).name()} (pid {each.pid})"
    except psutil.Error:
        pass
    return "a process that this user cannot see"


def _is_loopback(ip: str) -> bool:
    address = ip_address(ip)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
