"""MLflow's database and the place of its artifacts, checked before anything starts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from sqlalchemy import create_engine, inspect, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from mlcl.errors import UserError
from mlcl.service.local.folder import ServiceFolder
from mlcl.service.search.study_storage import hidden

KEY = "--store"
FORMS = "sqlite, sqlite:////FILE, postgresql+psycopg://USER@HOST/DATABASE"
CONNECT_SECONDS = 10
"""How long a server may take to accept a connection."""


def store_uri(text: str, folder: ServiceFolder) -> str:
    """The database's URI. Raises UserError for what is none; `sqlite` is the home's own file."""
    if text == "sqlite":
        return f"sqlite:///{folder.home / 'mlflow.db'}"
    scheme, mark, rest = text.partition("://")
    if scheme == "postgresql":
        scheme = "postgresql+psycopg"
    if not mark or scheme not in ("sqlite", "postgresql+psycopg"):
        raise UserError("unknown kind of store", key=KEY, found=f"{scheme}...", allowed=FORMS)
    if scheme == "sqlite":
        # A server has another working folder than the command.
        return f"sqlite:///{Path(rest.removeprefix('/')).expanduser().resolve()}"
    return f"{scheme}://{rest}"


def check_public(text: str) -> None:
    """Raises UserError for a password on the command line, which every user of the machine can read."""
    if hidden(text) != text:
        raise UserError(
            "a command line is public: no password in it",
            key=KEY,
            found=hidden(text),
            allowed="the URL in the variable MLCL_STORE, or the password in PGPASSWORD or ~/.pgpass",
        )


def check_store(uri: str) -> None:
    """Raises UserError where the database cannot be opened. No message has its password."""
    if "***" in uri:
        raise UserError("its password was not written down: give the URL again", key=KEY, found=uri)
    try:
        url = make_url(uri)
        timeout = {} if url.drivername == "sqlite" else {"connect_timeout": CONNECT_SECONDS}
        engine = create_engine(url, connect_args=timeout)
        try:
            inspect(engine).get_table_names()
        finally:
            engine.dispose()
    except (ArgumentError, ValueError):
        # What cannot be parsed cannot be shown without its password either.
        raise UserError("not the URL of a database", key=KEY, allowed=FORMS) from None
    except (SQLAlchemyError, ImportError) as error:
        found = f"{hidden(uri)} ({_reason(error, url.password)})"
        raise UserError("the store cannot be used", key=KEY, found=found) from None


def check_artifacts(place: str) -> None:
    """Raises UserError for what is neither a folder that can be made nor S3."""
    if place.startswith("s3://"):
        if importlib.util.find_spec("boto3") is None:
            raise UserError("S3 needs boto3: pip install boto3", key="--artifacts", found=place)
        return
    if "://" in place:
        raise UserError("unknown kind of place", key="--artifacts", found=place, allowed="a folder, s3://...")
    try:
        Path(place).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError("cannot be made", key="--artifacts", found=f"{place} ({error})") from None


def _reason(error: Exception, password: str | None) -> str:
    """The driver's first line: SQLAlchemy's own text goes on with SQL and links."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    line = str(cause).strip().partition("\n")[0] or type(cause).__name__
    return line.replace(str(password), "***") if password else line
