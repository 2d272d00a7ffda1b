"""The service's folder: its secrets, its databases, its logs, and what says which processes are its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlcl.errors import UserError
from mlcl.tracking.atomic_files import locked

ADMIN = "admin"
"""The first user of MLflow."""
BYTES = 32
"""Randomness of a secret."""


class ServiceFolder:
    """`HOME/service`, for this user's eyes alone."""

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
        """Makes the folder and the secrets that are missing. Raises UserError where it cannot be written."""
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
        """Removes what is true only while the service runs."""
        self.cluster.unlink(missing_ok=True)
        self.state.unlink(missing_ok=True)

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Holds the folder while inside. Raises UserError where another command holds it."""
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
    """Written once, mode 0600 from its first byte on; one that is there is kept, and its mode tightened."""
    if read_secret(path):
        path.chmod(0o600)
        return
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(value + "\n")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
