"""Reads cluster files, which name the Ray cluster, MLflow server and storage of submitted jobs."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from mlcl.config.safe_yaml import read_yaml
from mlcl.config.section import Positive, Section, exactly_one, validate
from mlcl.errors import UserError

MOST_MIB = 100
"""The size in MiB of the largest working directory that Ray's Jobs API accepts as an upload."""
SECRET = re.compile(r"(token|secret|passw|credential|api_?key|access_?key|private_?key)", re.IGNORECASE)
"""The pattern of names of variables that a cluster file may set only by a reference."""
PASSWORD = re.compile(r"://[^/\s@]*:[^/\s@]+@|[?&]password=", re.IGNORECASE)
"""The pattern of a URL that contains a password."""


def check_url(text: str) -> str:
    """Returns an http(s) URL without user and password. Raises a ValueError that hides any other text."""
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # wrong brackets, or a wrong port
        valid = False
    if not valid or "@" in parts.netloc or re.search(r"\s", text):
        raise ValueError("not an http(s) URL without user and password")
    return text


class Reference(Section):
    """A reference to a secret: an environment variable, or a file whose first line is the secret."""

    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        None, description="name of an environment variable"
    )
    file: Path | None = Field(None, description="file with the secret alone")

    _check_one_source = exactly_one("env", "file")

    def resolve(self, key: str) -> str:
        """Returns the secret. If it is missing or empty, raises UserError with `key`."""
        if self.env is not None:
            text = os.environ.get(self.env, "").strip()
            problem, source = "the variable is not set, or is empty", self.env
        else:
            file = (self.file or Path()).expanduser()
            problem, source = "the file cannot be read, or is empty", str(file)
            try:
                text = file.read_text(encoding="utf-8").partition("\n")[0].strip()
            except (OSError, ValueError):
                text = ""
        if not text:
            raise UserError(problem, key=key, found=source)
        return text


class RayHead(Section):
    """The address of a Ray cluster's head, and the token for it."""

    address: str = Field(description="http(s)://HOST:PORT of its dashboard, which takes jobs")
    token: Reference | None = Field(None, description="read on this machine; default: no authentication")

    @field_validator("address")
    @classmethod
    def _check_address(cls, address: str) -> str:
        if not re.fullmatch(r"https?://[^/\s:@]+(:\d{1,5})?/?", address):
            raise ValueError("not an http(s)://HOST:PORT, without user or password")
        return address.rstrip("/")


class MlflowServer(Section):
    """An MLflow server. The references to user and password are resolved on the cluster."""

    uri: str = Field(description="http(s)://HOST:PORT as the cluster reaches it")
    username: Reference | None = None
    password: Reference | None = None

    @field_validator("uri")
    @classmethod
    def _check_uri(cls, uri: str) -> str:
        return check_url(uri).rstrip("/")

    @model_validator(mode="after")
    def _check_login(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("give both username and password, or none")
        return self


class WorkingDir(Section):
    """The folder that is uploaded with a job. In a git repository, files that git ignores are left out."""

    path: Path = Field(Path(), description="folder; default: where the command is given")
    exclude: tuple[str, ...] = Field((), description="patterns of files to leave out, as in .gitignore")
    most_mib: Annotated[float, Field(gt=0, le=MOST_MIB)] = Field(
        MOST_MIB, description="size at which it is refused"
    )

    @property
    def root(self) -> Path:
        """The absolute path of the folder."""
        return self.path.expanduser().resolve()


class TrialShare(Section):
    """The default CPUs and GPUs of each training, and the default number of trainings that run at once."""

    cpu: Positive | None = None
    gpu: Annotated[float, Field(ge=0)] | None = None
    parallel: Annotated[int, Field(ge=1)] | None = Field(
        None, description="more than fit wait for nodes; default: as many as fit when the command starts"
    )


class ClusterConfig(Section):
    """A Ray cluster, its MLflow server, and a folder that all its nodes share."""

    ray: RayHead
    mlflow: MlflowServer | None = Field(None, description="default: SQLite in `storage`")
    storage: str = Field(description="absolute path of a folder that every node sees")
    cache: str | None = Field(
        None, description="folder on each node's own disk for models of the hub; default: in the user's home"
    )
    scratch: str | None = Field(
        None, description="folder on each node's own disk for decoded images; default: in `storage`"
    )
    python: str = Field("python", description="the interpreter that has mlcl, on the cluster's head")
    env: dict[str, str | Reference] = Field(
        default_factory=dict, description="variables of the job; references are read on the cluster"
    )
    working_dir: WorkingDir = WorkingDir()
    trial: TrialShare = TrialShare()

    @field_validator("storage")
    @classmethod
    def _check_storage(cls, storage: str) -> str:
        if "://" in storage:
            raise ValueError("folders of runs have locks: a file system that all nodes share is needed")
        return storage

    @field_validator("storage", "cache", "scratch")
    @classmethod
    def _check_absolute(cls, folder: str | None) -> str | None:
        if folder is not None and not PurePosixPath(folder).is_absolute():
            raise ValueError("not an absolute path")
        return folder

    @field_validator("env")
    @classmethod
    def _check_env(cls, env: dict[str, str | Reference]) -> dict[str, str | Reference]:
        for name, value in env.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"not the name of a variable: {name}")
            if isinstance(value, str) and (SECRET.search(name) or PASSWORD.search(value)):
                raise ValueError(f"the value of {name} may be a secret: give {{env: NAME}} or {{file: PATH}}")
        return env


def load_cluster(path: Path) -> ClusterConfig:
    """Reads and checks a cluster file. Raises UserError if it cannot be read, or for a wrong key."""
    try:
        return validate(ClusterConfig, read_yaml(path), path)
    except UserError as error:
        # These keys may contain a secret that was written there by mistake.
        value = "not shown" if (error.key or "").startswith(("ray", "mlflow", "env")) else error.found
        raise error.with_fields(found=value) from None
