"""What is known about a run, and how it gets into MLflow.

A run logs to files (`RunLog`); one thread of a command sends them (`Delivery`, to a `Tracker`). Only these
two need MLflow: they are imported when they are asked for, so that a trial's process never imports it.
"""

from typing import TYPE_CHECKING, Any

from mlcl.tracking.listener import mlflow_listener
from mlcl.tracking.log import RunLog
from mlcl.tracking.params import log_parameters, params_of
from mlcl.tracking.provenance import Provenance, provenance
from mlcl.tracking.states import MLFLOW_STATUS, State
from mlcl.tracking.undelivered import Left, deliver_left, undelivered
from mlcl.tracking.uri import dashboard, shown, tracking_uri

if TYPE_CHECKING:
    from mlcl.tracking.delivery import Delivery
    from mlcl.tracking.tracker import Tracker

__all__ = [
    "MLFLOW_STATUS",
    "Delivery",
    "Left",
    "Provenance",
    "RunLog",
    "State",
    "Tracker",
    "dashboard",
    "deliver_left",
    "log_parameters",
    "mlflow_listener",
    "params_of",
    "provenance",
    "shown",
    "tracking_uri",
    "undelivered",
]


def __getattr__(name: str) -> Any:
    if name == "Tracker":
        from mlcl.tracking.tracker import Tracker

        return Tracker
    if name == "Delivery":
        from mlcl.tracking.delivery import Delivery

        return Delivery
    raise AttributeError(name)
