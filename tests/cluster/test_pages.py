"""Tests that the pages of the clusters lead from nothing to a sweep in few commands."""

import re

import pytest

from mlcl.config.cluster import load_cluster

PAGES = ("ray-aws", "kuberay", "slurm", "own-machines", "docker")
HEADING = "## From nothing to the first sweep\n"


def commands(page):
    """Returns the section's commands up to the sweep; the parts of `&&` are separate commands."""
    section = page.partition(HEADING)[2].partition("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0] for block in blocks for line in block.splitlines()]
    section_commands = [part.strip() for line in lines for part in line.split("&&")]
    last = next(number for number, command in enumerate(section_commands) if " sweep jobs/" in command)
    return section_commands[: last + 1]


@pytest.fixture(params=PAGES)
def steps(request, root):
    return commands((root / "docs/cluster" / f"{request.param}.md").read_text())


def test_a_stranger_gets_from_a_clone_to_a_sweep_in_under_ten_commands(steps):
    assert steps[0].startswith("git clone REPOSITORY ")
    assert "make setup" in steps
    assert len(steps) < 10
    assert re.match(r"\.venv/bin/mlcl submit sweep |sbatch .* sweep ", steps[-1])


def test_scripts_and_cluster_files_of_the_steps_are_there_and_can_be_run(root, steps):
    scripts = [word for step in steps for word in step.split() if word.endswith(".sh")]
    for script in scripts:
        file = root / script.removeprefix("/shared/mlcl-clone/")
        assert file.stat().st_mode & 0o111, script
    for step in steps:
        if step.startswith("export MLCL_CLUSTER="):
            assert load_cluster(root / step.partition("=")[2]).ray.token is not None


def test_every_page_that_is_linked_is_checked(root):
    names = set(re.findall(r"\]\(([\w-]+)\.md\)", (root / "docs/cluster/README.md").read_text()))
    assert names - {"many-nodes"} == set(PAGES)


def test_the_driver_of_the_pages_is_that_of_the_wheels_cuda(root):
    versions = dict(
        re.findall(r"^([\w-]+)==(\d+\.\d+)", (root / "constraints.txt").read_text(), re.MULTILINE)
    )
    page, dockerfile = ((root / name).read_text() for name in ("docs/cluster/docker.md", "docker/Dockerfile"))
    # NVIDIA's table of the oldest driver for all CUDA versions of a major version.
    oldest_driver = {"12": "525", "13": "580"}[versions["cuda-toolkit"].partition(".")[0]]
    assert (
        f"PyTorch with CUDA {versions['cuda-toolkit']}, which needs **NVIDIA's driver {oldest_driver}**"
        in page
    )
    assert f"drivers older than {oldest_driver}" in dockerfile
    assert "TORCH_OPTIONS" in page
