"""Logs runs to files, which a background thread of the command sends to MLflow.

A `RunLog` writes the files; `Delivery` sends them to a `Tracker`. Only `Delivery` and `Tracker` need MLflow:
`Tracker` is imported at its first use, so that the process of a training never imports MLflow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlcl.store import State
from mlcl.tracking.log import RunLog, mlflow_listener
from mlcl.tracking.names import MLFLOW_STATUS
from mlcl.tracking.params import log_parameters, params_of, plain_parameters, typed_params, without_derived
from mlcl.tracking.provenance import Provenance, provenance
from mlcl.tracking.uri import dashboard, hide_password, tracking_uri

if TYPE_CHECKING:
    from mlcl.tracking.tracker import Tracker

__all__ = [
    "MLFLOW_STATUS",
    "Provenance",
    "RunLog",
    "State",
    "Tracker",
    "dashboard",
    "hide_password",
    "log_parameters",
    "mlflow_listener",
    "params_of",
    "plain_parameters",
    "provenance",
    "tracking_uri",
    "typed_params",
    "without_derived",
]


def __getattr__(name: str) -> Any:
    if name != "Tracker":
        raise AttributeError(name)
    return import_module("mlcl.tracking.tracker").Tracker
