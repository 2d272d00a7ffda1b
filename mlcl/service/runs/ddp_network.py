"""The network between the workers of a group: how they find one another, and what a broken one means."""

from __future__ import annotations

import os
from typing import Any

import psutil
import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend

MAX_FAILURES = 3
"""Starts of the group that may fail before that counts as an error of its own."""


class GroupConfig(TorchConfig):
    """Ray Train's own, for workers on several nodes: they find one another as Ray's nodes do.

    Gloo would take the address of the machine's name, which on many machines is 127.0.1.1.
    """

    @property
    def backend_cls(self) -> type:
        """What Ray starts the process group with."""
        return _Backend


class _Backend(_TorchBackend):
    def __init__(self) -> None:
        self._failed = 0

    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        if len(set(worker_group.execute(ray.util.get_node_ip_address))) > 1:
            worker_group.execute(_choose_interface)
        try:
            super().on_start(worker_group, backend_config)
        except RayTaskError as error:
            # A worker whose peer's node is lost says so before Ray does. Ray ends the run for an error, and
            # starts the group again for a lost worker.
            self._failed += 1
            if self._failed > MAX_FAILURES:
                raise
            raise RayActorError(error_msg=str(error)) from error


def _choose_interface() -> None:
    """A user's own choice stays."""
    name = interface(ray.util.get_node_ip_address())
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def interface(address: str) -> str | None:
    """The network interface that has the address; None where none has, as behind a translation."""
    for name, addresses in psutil.net_if_addrs().items():
        if address in (each.address for each in addresses):
            return name
    return None
