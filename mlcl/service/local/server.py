"""One of the two servers: how it is started, and what is wrong with it while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlcl.service.local.http import Answer

AGAIN = "`mlcl down --force`, then `mlcl up`"


@dataclass(frozen=True)
class Trouble:
    """What is wrong, and what mends it; `passing` where it may pass while the server starts."""

    what: str
    mend: str
    passing: bool = True


class Server(ABC):
    """Ray's head or MLflow's server."""

    name: str
    title: str
    log: Path
    address: str

    @property
    @abstractmethod
    def ports(self) -> Mapping[str, int]:
        """The ports that must be free, by the option that sets them."""

    def prepare(self) -> None:  # noqa: B027 (Ray needs nothing)
        """Writes what it reads at its start. Raises UserError where something that it needs is not there."""

    def make_scratch(self) -> str:
        """A folder that is removed when the server ends; empty where it needs none."""
        return ""

    @abstractmethod
    def command(self, scratch: str) -> list[str]:
        """What is run. No secret is in it: a command line is public."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The whole environment."""

    @abstractmethod
    def trouble(self) -> Trouble | None:
        """Asks it with its secret and without: None where the one is answered and the other refused."""


def pruner(trusted: Answer, stranger: Answer, secret: Path) -> Trouble | None:
    """What the two answers tell about a server."""
    if trusted.status == 0:
        return Trouble(f"does not answer ({trusted.text})", AGAIN)
    if trusted.status in (401, 403):
        mend = f"write the present one into {secret}"
        return Trouble(f"refuses the secret in {secret}", mend, passing=False)
    if trusted.status != 200:
        return Trouble(f"answers with status {trusted.status}", "see its log")
    if stranger.status == 200:
        return Trouble("answers without a secret", AGAIN, passing=False)
    return None
