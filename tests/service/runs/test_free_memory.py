"""The memory that is left, by the machine and its control groups."""

from collections import namedtuple

import pytest

from mlcl.service.runs import free_memory as module
from mlcl.service.runs.free_memory import free_memory

FREE = 10_000
V1 = ("5:cpu:/a/b\n4:memory:{}\n", "memory/", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
V2 = ("0::{}\n", "", "memory.max", "memory.current", "")


@pytest.fixture
def group(tmp_path, monkeypatch):
    """Writes a group's files; this process is in /a/b."""
    available = namedtuple("memory", "available")(FREE)
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: available)
    monkeypatch.setattr(module, "ROOT", tmp_path / "groups")
    monkeypatch.setattr(module, "GROUPS", tmp_path / "own")

    def write(version, path, limit, own="/a/b"):
        line, tree, most, used, prefix = version
        (tmp_path / "own").write_text(line.format(own))
        folder = tmp_path / "groups" / tree / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / most).write_text(f"{limit}\n")
        (folder / used).write_text("500\n")
        (folder / "memory.stat").write_text(f"{prefix}active_file 100\n{prefix}inactive_file 200\nanon 7\n")

    return write


def test_without_groups_it_is_the_machines(group):
    assert free_memory() == FREE


@pytest.mark.parametrize("version", [V1, V2])
def test_the_lowest_limit_of_a_group_and_its_parents_counts_without_cached_files(group, version):
    group(version, "a/b", 9_000)
    assert free_memory() == 8_800
    group(version, "a", 3_000)
    assert free_memory() == 2_800


@pytest.mark.parametrize("version", [V1, V2])
def test_in_a_container_the_root_has_the_limit(group, version):
    group(version, "", 2_000, own="/path/of/the/host")
    assert free_memory() == 1_800


@pytest.mark.parametrize(("version", "none"), [(V1, 2**63), (V2, "max")])
def test_a_group_without_a_limit_leaves_the_machines(group, version, none):
    group(version, "a/b", none)
    assert free_memory() == FREE
