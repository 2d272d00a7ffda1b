"""Prints constraints with the lowest version of every package of pyproject.toml, for `make test-lowest`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent


def lowest(lines: Iterable[str]) -> list[str]:
    """Returns `NAME==FLOOR` for every requirement but mlcl's own. Raises ValueError if one has no floor."""
    versions: dict[str, Version] = {}
    for requirement in map(Requirement, lines):
        if requirement.name == "mlcl":
            continue
        floors = [specifier.version for specifier in requirement.specifier if specifier.operator == ">="]
        if len(floors) != 1:
            raise ValueError(f"{requirement}: pyproject.toml gives no lowest version")
        floor = Version(floors[0])
        versions[requirement.name] = min(floor, versions.get(requirement.name, floor))
    return [f"{name}=={floor}" for name, floor in sorted(versions.items())]


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    print("\n".join(lowest([*project["dependencies"], *(line for extra in extras for line in extra)])))


if __name__ == "__main__":
    main()
