"""The cluster file of the local service, which `mlcl submit` reads. It names the files of secrets."""

from __future__ import annotations

import sys

import yaml

from mlcl.config.cluster import ClusterConfig
from mlcl.config.loader import validate
from mlcl.service.local.folder import ServiceFolder
from mlcl.service.local.ports import HOST
from mlcl.service.local.settings import Settings
from mlcl.tracking.atomic_files import replace_text


def write_cluster(folder: ServiceFolder, settings: Settings) -> None:
    """Writes `cluster.yaml`, whole or not at all."""
    tree = {
        "ray": {
            "address": f"http://{HOST}:{settings.dashboard_port}",
            "token": {"file": str(folder.ray_token)},
        },
        "mlflow": {
            "uri": f"http://{HOST}:{settings.mlflow_port}",
            "username": {"file": str(folder.mlflow_user)},
            "password": {"file": str(folder.mlflow_password)},
        },
        "storage": str(folder.home),
        "python": sys.executable,
    }
    validate(ClusterConfig, tree, folder.cluster)
    replace_text(folder.cluster, yaml.safe_dump(tree, sort_keys=False))
