"""Secrets of a submitted command: the job has references, which head and workers resolve for themselves."""

from __future__ import annotations

import json
import os

from pydantic import ValidationError

from mlcl.config.cluster import Reference
from mlcl.errors import UserError

DRIVER = "mlcl.cli.job_entrypoint"
"""The module that the cluster runs: it resolves references to secrets, then runs `mlcl`."""
REFERENCES = "MLCL_REFERENCES"
"""The environment variable with a JSON map from variable names to references to secrets.

All processes of the job have it. It contains no secret.
"""
DRIVER_ALONE = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
"""The variables that only the driver needs: trainings on workers log to files."""


def resolve_references(*, worker: bool = False) -> None:
    """Sets the variables in MLCL_REFERENCES to their secrets; on a `worker`, not those in DRIVER_ALONE."""
    try:
        tree = json.loads(os.environ.get(REFERENCES, "{}"))
        references = {str(name): Reference.model_validate(content) for name, content in tree.items()}
    except (ValueError, AttributeError, ValidationError):
        raise UserError("not a map of references", key=REFERENCES) from None
    for name, reference in references.items():
        if not (worker and name in DRIVER_ALONE):
            os.environ[name] = reference.resolve(f"{name}, on {os.uname().nodename} of the cluster")
