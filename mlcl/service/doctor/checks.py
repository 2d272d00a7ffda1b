"""Runs checks and applies the repairs of their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlcl.backports import StrEnum


@dataclass(frozen=True)
class Scope:
    """The home that the doctor checks, and the URI of its tracking store."""

    home: Path
    uri: str
    announce: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Finding:
    """A problem: the path, run or address that has it (`what`), the reason (`why`), and the `cure` as a text.

    `mend` applies the cure; it is None if only a person can apply it. Findings that are cured together have
    the same function. With `note`, the finding is not a problem.
    """

    what: str
    why: str
    cure: str
    mend: Callable[[], None] | None = None
    note: bool = False


Check = Callable[[Scope], Iterable[Finding]]
"""A function that looks for problems and returns its findings; it changes nothing on the disk."""


class Status(StrEnum):
    """The status of a finding: FOUND without `--fix`, else MENDED or LEFT (still there); NOTE: no problem."""

    FOUND = "FOUND"
    MENDED = "MENDED"
    LEFT = "LEFT"
    NOTE = "NOTE"


@dataclass(frozen=True)
class Result:
    """A finding of a check with its status; `mendable` says whether `--fix` can try to repair it."""

    check: str
    status: Status
    what: str
    why: str
    cure: str
    mendable: bool


def run_checks(scope: Scope, checks: Mapping[str, Check], *, fix: bool = False) -> list[Result]:
    """Runs the checks in order, and with `fix` their repairs. An exception in a check becomes a finding."""
    return [result for name, check in checks.items() for result in _run_check(name, check, scope, fix)]


def is_healthy(results: Iterable[Result]) -> bool:
    """Whether every finding is repaired or a note."""
    return all(result.status in (Status.MENDED, Status.NOTE) for result in results)


def _run_check(name: str, check: Check, scope: Scope, fix: bool) -> Iterator[Result]:
    findings = _collect_findings(name, check, scope)
    # Each repair runs once, in the order of the findings.
    repairs = dict.fromkeys(finding.mend for finding in findings if finding.mend is not None)
    if not fix or not repairs:
        yield from (_result(name, finding, Status.LEFT if fix else Status.FOUND) for finding in findings)
        return
    crashes = []
    for repair in repairs:
        try:
            repair()
        except Exception as error:
            crashes.append(_crash_finding(name, "mending", error))
    new_findings = _collect_findings(name, check, scope)
    remaining = {finding.what for finding in new_findings}  # what is still there was not repaired
    yield from (
        _result(name, finding, Status.MENDED) for finding in findings if finding.what not in remaining
    )
    yield from (_result(name, finding, Status.LEFT) for finding in [*new_findings, *crashes])


def _collect_findings(name: str, check: Check, scope: Scope) -> list[Finding]:
    findings: list[Finding] = []
    try:
        findings.extend(check(scope))
    except Exception as error:
        findings.append(_crash_finding(name, "looking", error))
    return findings


def _crash_finding(name: str, activity: str, error: Exception) -> Finding:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    return Finding(f"the check {name}", f"failed while {activity}: {reason}", "see the reason")


def _result(name: str, finding: Finding, status: Status) -> Result:
    status = Status.NOTE if finding.note else status
    return Result(name, status, finding.what, finding.why, finding.cure, finding.mend is not None)
