"""Audits the packages: consistent installation, tested versions, oldest Python, and known vulnerabilities.

The first three checks need no network. The last one asks the vulnerability service. If the service does not
answer, or does not know a package, the audit prints a line about it and continues.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
ACCEPTED: dict[str, str] = {}
"""The reason why an advisory does not affect mlcl, by its id. The best value is an empty one."""
OLDEST = "3.11.0"
"""The oldest Python of constraints.txt; `make test-lowest` tests an older one, with older packages."""
NOT_OURS = {"mlcl", "pip", "setuptools", "wheel"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def consistent() -> list[str]:
    process = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    return [] if process.returncode == 0 else process.stdout.strip().splitlines()


def pinned() -> list[str]:
    """Returns the installed packages whose version is not the tested one of constraints.txt."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1].isalnum()]
    tested_versions = {normal(name): version for name, _, version in (line.partition("==") for line in lines)}
    installed_versions = {
        normal(distribution.metadata["Name"]): distribution.version
        for distribution in metadata.distributions()
    }
    return [
        f"{name} {version}: constraints.txt says {tested_versions.get(name, 'nothing')}"
        for name, version in sorted(installed_versions.items())
        if name not in NOT_OURS and tested_versions.get(name) != version
    ]


def too_new() -> list[str]:
    """Returns the installed packages that need a newer Python than the oldest one of constraints.txt."""
    return [
        f"{distribution.metadata['Name']} {distribution.version}: needs Python {specifier}, "
        f"constraints.txt is for {OLDEST}"
        for distribution in metadata.distributions()
        if (specifier := distribution.metadata["Requires-Python"])
        and not SpecifierSet(specifier).contains(OLDEST)
    ]


def reported() -> tuple[list[dict], str]:
    """Returns pip-audit's entry of every package, and the reason if there are none."""
    options = "--format json --progress-spinner off --no-deps --disable-pip --timeout 10 --requirement"
    command = [sys.executable, "-m", "pip_audit", *options.split(), str(ROOT / "constraints.txt")]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    except subprocess.TimeoutExpired:
        return [], "no answer within 180 s"
    try:
        return json.loads(process.stdout)["dependencies"], ""
    except (ValueError, KeyError):
        return [], process.stderr.strip().rpartition("\n")[2]


def vulnerable(packages: list[dict]) -> list[str]:
    """Returns the known vulnerabilities that ACCEPTED does not name."""
    return [
        f"{package['name']} {package['version']}: {advisory['id']}, fixed in {advisory['fix_versions']}"
        for package in packages
        for advisory in package.get("vulns", [])
        if advisory["id"] not in ACCEPTED
    ]


def unchecked(packages: list[dict], reason: str) -> str:
    """Returns a line on packages that could not be checked for vulnerabilities; empty if there are none."""
    unknown_names = [package["name"] for package in packages if "skip_reason" in package]
    if not packages:
        return f"audit: known vulnerabilities were not checked: {reason}"
    if len(unknown_names) == len(packages):
        return "audit: known vulnerabilities were not checked: the service knows none of the packages"
    return (
        f"audit: the vulnerability service does not know {', '.join(unknown_names)}" if unknown_names else ""
    )


def main() -> int:
    packages, reason = reported()
    problems = consistent() + pinned() + too_new() + vulnerable(packages)
    if line := unchecked(packages, reason):
        print(line)
    print("\n".join(problems) if problems else "audit: installation consistent, all packages as tested")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
