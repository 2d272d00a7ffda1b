"""The folder of the service: secrets, databases, logs, and the state of its processes."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlcl.errors import UserError
from mlcl.files import locked, replace_text

ADMIN = "admin"
"""The first MLflow user."""
BYTES = 32
"""Random bytes of a secret."""


class ServiceFolder:
    """`HOME/service`, which only this user can read."""

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()
        self.path = self.home / "service"
        self.state = self.path / "state.json"
        self.cluster = self.path / "cluster.yaml"
        self.ray_token = self.path / "ray.token"
        self.mlflow_user = self.path / "mlflow.user"
        self.mlflow_password = self.path / "mlflow.password"
        self.mlflow_config = self.path / "mlflow.ini"
        self.mlflow_users = self.path / "mlflow-users.db"
        self.ray_log = self.path / "ray.log"
        self.mlflow_log = self.path / "mlflow.log"
        self.ray_logs = self.path / "ray-logs"

    def make(self) -> None:
        """Creates the folder and missing secrets. Raises UserError where it cannot be written."""
        if any(sign in str(self.home) for sign in "?#%"):
            raise UserError(
                "not a path for an SQLite store", key="--home", found=self.home, allowed="no ? # %"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)
            _secret(self.ray_token, secrets.token_hex(BYTES))
            _secret(self.mlflow_user, ADMIN)
            _secret(self.mlflow_password, secrets.token_urlsafe(BYTES))
        except OSError as error:
            raise UserError("cannot be written", key="--home", found=f"{self.path} ({error})") from None

    def forget(self) -> None:
        """Removes the files that describe a running service."""
        self.cluster.unlink(missing_ok=True)
        self.state.unlink(missing_ok=True)

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Locks the folder while the context is open. Raises UserError where another command has it."""
        with locked(self.path / ".lock") as mine:
            if not mine:
                raise UserError("another `mlcl up` or `mlcl down` is at work", file=self.path)
            yield


def read_secret(path: Path) -> str:
    """The file's first line; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, ValueError):
        return ""


def _secret(path: Path, value: str) -> None:
    """Writes a secret with mode 0600 from the first byte on; an existing one is kept and gets that mode."""
    if read_secret(path):
        path.chmod(0o600)
    else:
        replace_text(path, value + "\n", mode=0o600)
