"""The URI of the tracking store, and how it is printed. Nothing here sends a request."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

LOCAL = "http://127.0.0.1:5000"
"""The default address of `mlflow ui`."""
KEY = "MLFLOW_TRACKING_URI"
SECRET = re.compile(r"((?:[a-z]*password|passwd|pwd|secret|token)=)[^&]*", re.IGNORECASE)
"""Matches a password among the query options of a URL."""
IN_HOME = "sqlite:///HOME/"
"""The prefix of the URI of an SQLite file inside the home, as records and logs store it."""


def tracking_uri(home: Path) -> str:
    """Returns the URI of the store for runs under `home`: MLFLOW_TRACKING_URI, else an SQLite file there."""
    return os.environ.get(KEY) or f"sqlite:///{home.resolve()}/mlflow.db"


def sqlite_file(uri: str) -> Path | None:
    """Returns the path of the file of an SQLite store; None for other stores."""
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    return Path(path) if uri.startswith("sqlite:///") else None


def hide_password(uri: str) -> str:
    """Returns the URI with its password hidden, even if this contains `@` or `/`; a path is unchanged."""
    scheme, mark, rest = uri.partition("://")
    user, separator, host = rest.rpartition("@")
    if separator and scheme != "sqlite":
        name, colon, _ = user.partition(":")
        rest = f"{name}{colon}{'***' if colon else ''}@{host}"
    return SECRET.sub(r"\1***", f"{scheme}://{rest}") if mark else uri


def stored_uri(uri: str, home: Path) -> str:
    """Returns the URI as logs store it: with its password hidden, and a file in the home relative to it."""
    file, root = sqlite_file(uri), home.resolve()
    if file is not None and file.is_relative_to(root):
        return f"{IN_HOME}{file.relative_to(root)}"
    return hide_password(uri)


def driver_error(error: Exception, password: str | None) -> str:
    """Returns the first line of a database driver's error, without SQLAlchemy's SQL and the password."""
    cause = getattr(error, "orig", None) or error
    line = str(cause).strip().partition("\n")[0] or type(cause).__name__
    return line.replace(str(password), "***") if password else line


def without_login(uri: str) -> str:
    """Returns the URI of a server without user, password and trailing slash."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")


def pages_address(uri: str) -> str:
    """Returns the address of MLflow's web pages, without login; `LOCAL` if `uri` is not of a server."""
    if not uri.startswith(("http://", "https://")):
        return LOCAL
    return without_login(urlunsplit(urlsplit(uri)._replace(query="", fragment="")))


def dashboard(uri: str) -> str:
    """Returns the instruction to open MLflow's web pages on this store: `mlflow ui ...` or `open URL`."""
    if uri.startswith(("http://", "https://")):
        return f"open {hide_password(uri)}"
    return f"mlflow ui --backend-store-uri {shlex.quote(hide_password(uri))}"
