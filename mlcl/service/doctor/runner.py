"""Runs the checks in order; with `fix` each check repairs its findings and is then run again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mlcl.service.doctor.files import (
    find_full_disk,
    find_narrow_limits,
    find_partial_files,
    find_stale_files,
    find_unusable_store,
)
from mlcl.service.doctor.finding import Check, Finding, Scope
from mlcl.service.doctor.mlflow_runs import find_undelivered, find_wrong_states
from mlcl.service.doctor.records import find_damaged_database, find_dead_runs
from mlcl.service.doctor.servers import (
    find_other_versions,
    find_server_versions,
    find_stale_address,
    find_unreachable_servers,
)

CHECKS = (
    Check("disk", find_full_disk),
    Check("limits", find_narrow_limits),
    Check("store", find_unusable_store),
    Check("services", find_unreachable_servers),
    Check("versions", find_other_versions),
    Check("server-versions", find_server_versions),
    Check("database", find_damaged_database),
    Check("killed", find_dead_runs),
    Check("partial-files", find_partial_files),
    Check("leftovers", find_stale_files),
    Check("delivery", find_undelivered),
    Check("mlflow-states", find_wrong_states),
    Check("ray-file", find_stale_address),
)
"""In order: the repairs of one check are the basis of the next one's findings."""


class Status(StrEnum):
    """The state of a finding: FOUND without --fix; MENDED or LEFT with it. A NOTE needs no repair."""

    FOUND = "FOUND"
    MENDED = "MENDED"
    LEFT = "LEFT"
    NOTE = "NOTE"


@dataclass(frozen=True)
class Result:
    """A finding of a check with its status; `mendable`: `--fix` tries to repair it."""

    check: str
    status: Status
    what: str
    why: str
    cure: str
    mendable: bool


def run_checks(scope: Scope, *, fix: bool = False, checks: Sequence[Check] = CHECKS) -> list[Result]:
    """Runs every check. A check that raises an exception gives a finding instead."""
    return [result for check in checks for result in _run(check, scope, fix)]


def healthy(results: Iterable[Result]) -> bool:
    """Whether every finding is repaired or a note."""
    return all(result.status in (Status.MENDED, Status.NOTE) for result in results)


def _run(check: Check, scope: Scope, fix: bool) -> Iterator[Result]:
    found = _look(check, scope)
    # Each repair once, in the order of the findings.
    mends = list(dict.fromkeys(finding.mend for finding in found if finding.mend is not None))
    if not fix or not mends:
        yield from (_result(check, finding, Status.LEFT if fix else Status.FOUND) for finding in found)
        return
    failed = []
    for mend in mends:
        try:
            mend()
        except Exception as error:
            failed.append(_crash(check, "mending", error))
    # A finding that is still there was not repaired.
    after = _look(check, scope)
    left = {finding.what for finding in after}
    gone = [finding for finding in found if finding.what not in left]
    yield from (_result(check, finding, Status.MENDED) for finding in gone)
    yield from (_result(check, finding, Status.LEFT) for finding in [*after, *failed])


def _look(check: Check, scope: Scope) -> list[Finding]:
    found: list[Finding] = []
    try:
        found.extend(check.find(scope))
    except Exception as error:
        found.append(_crash(check, "looking", error))
    return found


def _crash(check: Check, doing: str, error: Exception) -> Finding:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    return Finding(f"the check {check.name}", f"failed while {doing}: {reason}", "see the reason")


def _result(check: Check, finding: Finding, status: Status) -> Result:
    return Result(
        check=check.name,
        status=Status.NOTE if finding.note else status,
        what=finding.what,
        why=finding.why,
        cure=finding.cure,
        mendable=finding.mend is not None,
    )
