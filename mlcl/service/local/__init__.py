"""The local service: a Ray head and an MLflow server for this machine, with their state in one folder."""

from mlcl.service.local.down import Ended, down
from mlcl.service.local.settings import UpOptions
from mlcl.service.local.status import ServiceStatus, look, pages
from mlcl.service.local.up import ServiceError, Started, up

__all__ = ["Ended", "ServiceError", "ServiceStatus", "Started", "UpOptions", "down", "look", "pages", "up"]
