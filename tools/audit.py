"""Package audit: consistent installation, every package pinned, no known vulnerability.

The first two need no network. The third asks the vulnerability service; where it cannot be reached the audit
says so and passes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ACCEPTED: dict[str, str] = {}
"""Advisory id -> why it does not concern us. Empty is best."""
NOT_OURS = {"mlcl", "pip", "setuptools", "wheel"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def consistent() -> list[str]:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else done.stdout.strip().splitlines()


def pinned() -> list[str]:
    """Installed packages whose version is not the tested one of constraints.txt."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1].isalnum()]
    tested = {normal(name): version for name, _, version in (line.partition("==") for line in lines)}
    installed = {normal(d.metadata["Name"]): d.version for d in metadata.distributions()}
    return [
        f"{name} {version}: constraints.txt says {tested.get(name, 'nothing')}"
        for name, version in sorted(installed.items())
        if name not in NOT_OURS and tested.get(name) != version
    ]


def vulnerable() -> list[str] | None:
    """Known vulnerabilities, None where the service cannot be asked."""
    options = "--format json --progress-spinner off --no-deps --disable-pip --timeout 10 --requirement"
    command = [sys.executable, "-m", "pip_audit", *options.split(), str(ROOT / "constraints.txt")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
        found = json.loads(done.stdout)
    except (ValueError, subprocess.TimeoutExpired):
        return None
    if all("skip_reason" in package for package in found["dependencies"]):
        return None  # a mirror answered that knows no package
    return [
        f"{package['name']} {package['version']}: {advisory['id']}, fixed in {advisory['fix_versions']}"
        for package in found["dependencies"]
        for advisory in package.get("vulns", [])
        if advisory["id"] not in ACCEPTED
    ]


def main() -> int:
    problems = consistent() + pinned()
    known = vulnerable()
    if known is None:
        print("audit: the vulnerability service cannot be reached; known vulnerabilities were not checked")
    problems += known or []
    print("\n".join(problems) if problems else "audit: installation consistent, all packages as tested")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
