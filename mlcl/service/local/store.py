"""Checks of MLflow's database and of the place of its artifacts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from sqlalchemy import create_engine, inspect, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from mlcl.errors import UserError
from mlcl.service.local.folder import ServiceFolder
from mlcl.tracking.uri import driver_error, without_password

KEY = "--store"
FORMS = "sqlite, sqlite:////FILE, postgresql+psycopg://USER@HOST/DATABASE"
CONNECT_SECONDS = 10
"""Seconds that a server may take to accept a connection."""


def store_uri(text: str, folder: ServiceFolder) -> str:
    """The URI of the database; `sqlite` is a file of the home. Raises UserError for another kind of store."""
    if text == "sqlite":
        return f"sqlite:///{folder.home / 'mlflow.db'}"
    scheme, mark, rest = text.partition("://")
    if scheme == "postgresql":
        scheme = "postgresql+psycopg"
    if not mark or scheme not in ("sqlite", "postgresql+psycopg"):
        raise UserError("unknown kind of store", key=KEY, found=f"{scheme}...", allowed=FORMS)
    if scheme == "sqlite":
        # The server has another working folder than the command.
        return f"sqlite:///{Path(rest.removeprefix('/')).expanduser().resolve()}"
    return f"{scheme}://{rest}"


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
        # The password of a URL that cannot be parsed cannot be found either.
        raise UserError("not the URL of a database", key=KEY, allowed=FORMS) from None
    except (SQLAlchemyError, ImportError) as error:
        found = f"{without_password(uri)} ({driver_error(error, url.password)})"
        raise UserError("the store cannot be used", key=KEY, found=found) from None


def check_artifacts(place: str) -> None:
    """Raises UserError for a place that is neither S3 nor a folder that can be created."""
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
