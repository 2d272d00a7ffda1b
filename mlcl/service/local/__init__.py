"""The local service: a Ray head and an MLflow server for this machine, with their state in one folder."""

from mlcl.service.local.down import DownResult, down
from mlcl.service.local.settings import UpOptions
from mlcl.service.local.status import ServiceStatus, mlflow_address, service_status
from mlcl.service.local.up import ServiceError, UpResult, up

__all__ = [
    "DownResult",
    "ServiceError",
    "ServiceStatus",
    "UpOptions",
    "UpResult",
    "down",
    "mlflow_address",
    "service_status",
    "up",
]
