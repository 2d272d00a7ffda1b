"""MLflow: names, runs, artifacts, provenance."""

from mlcl.tracking.listener import mlflow_listener
from mlcl.tracking.names import MLFLOW_STATUS, State, params_of
from mlcl.tracking.provenance import Provenance, provenance
from mlcl.tracking.run import RunLog, Tracker

__all__ = [
    "MLFLOW_STATUS",
    "Provenance",
    "RunLog",
    "State",
    "Tracker",
    "mlflow_listener",
    "params_of",
    "provenance",
]
