"""Finds what crashes left behind, and mends what can be mended."""

from mlcl.service.doctor.finding import Check, Finding, Scope
from mlcl.service.doctor.runner import CHECKS, Result, Status, examine, healthy

__all__ = ["CHECKS", "Check", "Finding", "Result", "Scope", "Status", "examine", "healthy"]
