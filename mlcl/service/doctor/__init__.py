"""Checks for remains of crashes and for problems that keep commands from working; repairs some of them."""

from collections.abc import Mapping

from mlcl.service.doctor.checks import Check, Finding, Result, Scope, Status, is_healthy, run_checks
from mlcl.service.doctor.home_checks import (
    find_damaged_database,
    find_dead_runs,
    find_full_disk,
    find_partial_files,
    find_stale_files,
    find_unusable_store,
)
from mlcl.service.doctor.mlflow_runs import find_undelivered, find_wrong_states
from mlcl.service.doctor.servers import (
    find_narrow_limits,
    find_other_versions,
    find_server_versions,
    find_stale_address,
    find_unreachable_servers,
    find_unusable_gpu,
)

__all__ = ["CHECKS", "Check", "Finding", "Result", "Scope", "Status", "is_healthy", "run_checks"]

CHECKS: Mapping[str, Check] = {
    "disk": find_full_disk,
    "limits": find_narrow_limits,
    "store": find_unusable_store,
    "services": find_unreachable_servers,
    "versions": find_other_versions,
    "gpu": find_unusable_gpu,
    "server-versions": find_server_versions,
    "database": find_damaged_database,
    "killed": find_dead_runs,
    "partial-files": find_partial_files,
    "leftovers": find_stale_files,
    "delivery": find_undelivered,
    "mlflow-states": find_wrong_states,
    "ray-file": find_stale_address,
}
"""All checks by name, in the order in which they run: a check relies on the repairs of earlier ones."""
