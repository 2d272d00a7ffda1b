"""The network between the workers of a group."""

from __future__ import annotations

import os
from typing import Any

import psutil
import ray
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend


class GroupConfig(TorchConfig):
    """Ray Train's own, for workers on several nodes: they find one another as Ray's nodes do.

    Gloo would take the address of the machine's name, which on many machines is 127.0.1.1.
    """

    @property
    def backend_cls(self) -> type:
        """What Ray starts the process group with."""
        return _Backend


class _Backend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        if len(set(worker_group.execute(ray.util.get_node_ip_address))) > 1:
            worker_group.execute(_choose_interface)
        super().on_start(worker_group, backend_config)


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
