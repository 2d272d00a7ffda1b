"""The URL of a run's page in MLflow."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

LOCAL = "http://127.0.0.1:5000"
"""The default address of `mlflow ui`."""


def server_of(uri: str) -> str:
    """The address of MLflow's pages for a tracking store, without user and password."""
    if not uri.startswith(("http://", "https://")):
        return LOCAL
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")).rstrip(
        "/"
    )


def run_link(server: str, experiment_id: str, run_id: str) -> str:
    """The URL of a run's page."""
    return f"{server.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"
