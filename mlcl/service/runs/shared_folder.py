"""Folders on the nodes of a cluster: that all see the home, and stand where the command was given."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mlcl.errors import UserError

SECONDS = 60.0
"""How long a node may take to look."""


def check_shared(home: Path) -> None:
    """Raises UserError where a cluster has several nodes and some of them do not see `home`.

    A file with a random word is written here and read on each node.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) < 2:
        return
    home.mkdir(parents=True, exist_ok=True)
    word = secrets.token_hex(8)
    file = home.resolve() / f".seen-{word}"
    file.write_text(word)
    try:
        blind = _blind(nodes, file, word)
    finally:
        file.unlink(missing_ok=True)
    if blind:
        raise UserError(
            "not every node of the cluster sees this folder",
            file=home.resolve(),
            key="storage (--home, MLCL_HOME)",
            found=f"not on {', '.join(blind)}",
            allowed="a file system that all nodes share, under the same path",
        )


def enter_workdir(folder: str) -> None:
    """From here on this process is in the folder where the command was given: relative paths mean the same.

    A node that has no such folder is left as it is: a job's paths may be absolute.
    """
    if Path(folder).is_dir():
        os.chdir(folder)


def _blind(nodes: list[dict[str, object]], file: Path, word: str) -> list[str]:
    """The addresses of the nodes that do not see the file; one that does not answer counts as such."""

    look = ray.remote(num_cpus=0, max_retries=0)(_read)
    asked = {}
    for node in nodes:
        where = NodeAffinitySchedulingStrategy(str(node["NodeID"]), soft=False)
        asked[look.options(scheduling_strategy=where).remote(str(file))] = str(node["NodeManagerAddress"])
    ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=SECONDS)
    seen = {ref for ref in ready if _answer(ref) == word}
    return sorted(address for ref, address in asked.items() if ref not in seen)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _answer(ref: ray.ObjectRef[str]) -> str:
    try:
        return str(ray.get(ref))
    except ray.exceptions.RayError:
        return ""
