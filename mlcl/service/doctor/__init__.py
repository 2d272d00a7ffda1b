"""Checks for what crashes left behind and for what keeps commands from working; repairs what it can."""

from mlcl.service.doctor.finding import Check, Finding, Scope
from mlcl.service.doctor.runner import CHECKS, Result, Status, healthy, run_checks

__all__ = ["CHECKS", "Check", "Finding", "Result", "Scope", "Status", "healthy", "run_checks"]
