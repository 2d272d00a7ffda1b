"""Prints the version of a Ray cluster: `python -m mlcl.service.doctor.ray_version HOST:PORT`."""

from __future__ import annotations

import sys


def main(address: str) -> None:
    """Prints the version that `ray.init` compares with its own."""
    from ray._common.usage.usage_lib import get_cluster_metadata
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    sys.stdout.write(str(get_cluster_metadata(GcsClient(address=address)).get("ray_version", "")))


if __name__ == "__main__":
    main(sys.argv[1])
