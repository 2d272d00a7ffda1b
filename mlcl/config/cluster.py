"""Cluster files: the Ray cluster, MLflow server and storage of submitted jobs. They refer to secrets only."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from mlcl.config.safe_yaml import read_yaml
from mlcl.config.section import Positive, Section, validate
from mlcl.errors import UserError

MOST_MIB = 100
"""Largest uploaded working directory that Ray's Jobs API accepts."""
SECRET = re.compile(r"(token|secret|passw|credential|api_?key|access_?key|private_?key)", re.IGNORECASE)
"""Names of variables whose values are never written down."""
PASSWORD = re.compile(r"://[^/\s@]*:[^/\s@]+@|[?&]password=", re.IGNORECASE)
"""An address with a password in it."""


class Reference(Section):
    """A reference to a secret: an environment variable, or a file whose first line it is."""

    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        None, description="name of an environment variable"
    )
    file: Path | None = Field(None, description="file with the secret alone")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("give exactly one of env and file")
        return self

    def resolve(self, key: str) -> str:
        """The secret. Raises UserError for a missing one, with the reference and never with a content."""
        if self.env is not None:
            text = os.environ.get(self.env, "")
            problem, found = "the variable is not set", self.env
        else:
            file = (self.file or Path()).expanduser()
            problem, found = "the file cannot be read, or is empty", str(file)
            try:
                text = file.read_text(encoding="utf-8").partition("\n")[0].strip()
            except (OSError, ValueError):
                text = ""
        if not text:
            raise UserError(problem, key=key, found=found)
        return text


class RayHead(Section):
    """The head of a Ray cluster."""

    address: str = Field(description="http(s)://HOST:PORT of its dashboard, which takes jobs")
    token: Reference | None = Field(None, description="read on this machine; default: no authentication")

    @field_validator("address")
    @classmethod
    def _http(cls, address: str) -> str:
        if not re.fullmatch(r"https?://[^/\s:@]+(:\d{1,5})?/?", address):
            raise ValueError("not an http(s)://HOST:PORT, without user or password")
        return address.rstrip("/")


class MlflowServer(Section):
    """An MLflow server. User and password are read on the cluster, where the command runs."""

    uri: str = Field(description="http(s)://HOST:PORT as the cluster reaches it")
    username: Reference | None = None
    password: Reference | None = None

    @field_validator("uri")
    @classmethod
    def _no_password(cls, uri: str) -> str:
        if not re.fullmatch(r"https?://[^/\s@]+(/\S*)?", uri):
            raise ValueError("not an http(s) address without user and password")
        return uri.rstrip("/")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("give both username and password, or none")
        return self


class WorkingDir(Section):
    """The folder that is uploaded with a job: all files that git does not ignore, without git all files."""

    path: Path = Field(Path(), description="folder; default: where the command is given")
    exclude: tuple[str, ...] = Field((), description="patterns of files to leave out, as in .gitignore")
    most_mib: Annotated[float, Field(gt=0, le=MOST_MIB)] = Field(
        MOST_MIB, description="size at which it is refused"
    )

    @property
    def root(self) -> Path:
        """The folder, absolute."""
        return self.path.expanduser().resolve()


class TrialShare(Section):
    """CPUs and GPUs of each training, and how many trainings run at once, by default."""

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
    python: str = Field("python", description="the interpreter that has mlcl, on the cluster's head")
    env: dict[str, str | Reference] = Field(
        default_factory=dict, description="variables of the job; references are read on the cluster"
    )
    working_dir: WorkingDir = WorkingDir()
    trial: TrialShare = TrialShare()

    @field_validator("storage")
    @classmethod
    def _absolute(cls, storage: str) -> str:
        if "://" in storage:
            raise ValueError("folders of runs have locks: a file system that all nodes share is needed")
        if not PurePosixPath(storage).is_absolute():
            raise ValueError("not an absolute path")
        return storage

    @field_validator("env")
    @classmethod
    def _by_reference(cls, env: dict[str, str | Reference]) -> dict[str, str | Reference]:
        for name, value in env.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"not the name of a variable: {name}")
            if isinstance(value, str) and (SECRET.search(name) or PASSWORD.search(value)):
                raise ValueError(f"the value of {name} may be a secret: give {{env: NAME}} or {{file: PATH}}")
        return env


def load_cluster(path: Path) -> ClusterConfig:
    """The checked cluster file. Raises UserError with file, key, what was found and what is allowed."""
    try:
        return validate(ClusterConfig, read_yaml(path), path)
    except UserError as error:
        # A value that was put there by mistake may be a secret.
        found = "not shown" if (error.key or "").startswith(("ray", "mlflow", "env")) else error.found
        raise error.but(found=found) from None
