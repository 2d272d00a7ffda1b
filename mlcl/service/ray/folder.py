"""Folders of a Ray session: Ray's files and token, the home on all nodes, and the working directory."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlcl.errors import UserError

MAX_SOCKET = 107
"""The largest number of bytes of a socket's path on Linux."""
SOCKET = "/session_2000-01-01_00-00-00_000000_0000000/sockets/plasma_store"
"""The end of the longest path of Ray's sockets, as an example with the same length."""
SHORT = Path("/tmp/ray")
"""The folder of Ray's files if the path of the default folder is too long."""
SECONDS = 60.0
"""Seconds to wait until all nodes have read a file of the home."""


def default_folder() -> str:
    """Returns the folder in which Ray keeps its files by default on Linux."""
    return f"{os.environ.get('RAY_TMPDIR') or os.environ.get('TMPDIR') or '/tmp'}/ray"


def short_folder(usual_folder: str, announce: Callable[[str], None]) -> str | None:
    """Returns and announces a folder for Ray's files if socket paths in `usual_folder` are too long."""
    if len(os.fsencode(usual_folder + SOCKET)) <= MAX_SOCKET:
        return None
    parent, name = os.path.split(usual_folder)
    try:
        SHORT.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=SHORT).close()
    except OSError:
        raise UserError(
            f"too long for the sockets of Ray, and {SHORT} cannot be written",
            key="RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR",
            found=parent,
            allowed=f"{MAX_SOCKET - len(f'/{name}{SOCKET}')} characters",
        ) from None
    announce(f"{parent} is too long for Ray's sockets: its files are in {SHORT}")
    return str(SHORT)


def ensure_token() -> None:
    """Sets RAY_AUTH_TOKEN to a random token if Ray finds none and cannot write one to the user's folder."""
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return
    token = Path.home() / ".ray" / "auth_token"
    try:
        if not token.is_file():
            token.parent.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=token.parent).close()
    except OSError:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def check_shared(home: Path) -> None:
    """Raises UserError if not all nodes of a cluster see `home`: each reads a random word from a file."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) < 2:
        return
    home.mkdir(parents=True, exist_ok=True)
    word = secrets.token_hex(8)
    file = home.resolve() / f".seen-{word}"
    file.write_text(word)
    try:
        blind_nodes = _blind_nodes(nodes, file, word)
    finally:
        file.unlink(missing_ok=True)
    if blind_nodes:
        raise UserError(
            "not every node of the cluster sees this folder",
            file=home.resolve(),
            key="storage (--home, MLCL_HOME)",
            found=f"not on {', '.join(blind_nodes)}",
            allowed="a file system that all nodes share, under the same path",
        )


def enter_workdir(folder: str) -> None:
    """Changes to the command's folder, if the node has it, so that relative paths mean the same files."""
    if Path(folder).is_dir():
        os.chdir(folder)


def _blind_nodes(nodes: list[dict[str, Any]], file: Path, word: str) -> list[str]:
    """Returns the addresses of the nodes that do not see the file, or do not answer in time."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_retries=0)(_read_text)
    addresses = {}
    for node in nodes:
        on_node = NodeAffinitySchedulingStrategy(str(node["NodeID"]), soft=False)
        addresses[look.options(scheduling_strategy=on_node).remote(str(file))] = str(
            node["NodeManagerAddress"]
        )
    ready, not_ready = ray.wait(list(addresses), num_returns=len(addresses), timeout=SECONDS)
    blind_nodes = [addresses[ref] for ref in not_ready]
    for ref in ready:
        try:
            seen = ray.get(ref) == word
        except ray.exceptions.RayError:
            seen = False
        blind_nodes += [] if seen else [addresses[ref]]
    return sorted(blind_nodes)


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
