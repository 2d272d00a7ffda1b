"""Finds what crashes left behind, and mends what can be mended."""

from mlcl.service.doctor.examine import CHECKS, Result, Status, examine, healthy
from mlcl.service.doctor.finding import Check, Finding, Scope

__all__ = ["CHECKS", "Check", "Finding", "Result", "Scope", "Status", "examine", "healthy"]
