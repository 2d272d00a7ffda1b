"""A server of the local service: how it is started and checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlcl.tracking.network import Answer

RESTART = "`mlcl down --force`, then `mlcl up`"


@dataclass(frozen=True)
class Problem:
    """What is wrong and how to mend it; `passing`: it may pass while the server starts."""

    what: str
    mend: str
    passing: bool = True


class Server(ABC):
    """The Ray head or the MLflow server."""

    name: str
    title: str
    log: Path
    address: str

    @property
    @abstractmethod
    def ports(self) -> Mapping[str, int]:
        """The ports that must be free, by the option that sets them."""

    def prepare(self) -> None:  # noqa: B027 (Ray needs nothing)
        """Writes the server's configuration. Raises UserError where a requirement is missing."""

    def make_scratch(self, _announce: Callable[[str], None]) -> str:
        """A folder that is removed when the server ends; empty where it needs none."""
        return ""

    @abstractmethod
    def command(self, scratch: str) -> list[str]:
        """The command line. It has no secret, because it is public."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The whole environment."""

    @abstractmethod
    def problem(self) -> Problem | None:
        """Sends a request with the secret and one without; None where only the first is answered."""


def check_auth(trusted: Answer, stranger: Answer, secret: Path) -> Problem | None:
    """The problem of a server by its answers to a request with the secret and to one without; or None."""
    if trusted.status == 0:
        return Problem(f"does not answer ({trusted.text})", RESTART)
    if trusted.status in (401, 403):
        mend = f"write the present one into {secret}"
        return Problem(f"refuses the secret in {secret}", mend, passing=False)
    if trusted.status != 200:
        return Problem(f"answers with status {trusted.status}", "see its log")
    if stranger.status == 200:
        return Problem("answers without a secret", RESTART, passing=False)
    return None
