"""Tests the cluster files of jobs, and the file of Ray's cluster launcher with Ray's own check."""

import subprocess
from pathlib import Path

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from mlcl.config.cluster import load_cluster

FILES = (
    "cluster/local.yaml",
    "cluster/ray-aws.mlcl.yaml",
    "cluster/kuberay/kuberay.mlcl.yaml",
    "cluster/lab.yaml",
    "docker/cluster.yaml",
)


@pytest.fixture(scope="module")
def launcher(root):
    """Returns the launcher's file as Ray reads it."""
    config = prepare_config(yaml.safe_load((root / "cluster" / "ray-aws.yaml").read_text()))
    validate_config(config)
    return config


@pytest.mark.parametrize("name", FILES)
def test_a_cluster_file_is_read(root, name):
    cluster = load_cluster(root / name)
    assert cluster.ray.address == "http://127.0.0.1:8265"
    assert cluster.ray.token is not None


def test_no_default_of_rays_launcher_is_left_open(launcher):
    assert {"head", "gpu"} == set(launcher["available_node_types"])
    for node in launcher["available_node_types"].values():
        # Without these keys Ray creates a group with SSH open to all, and a role with all of EC2 and S3.
        assert {"SecurityGroupIds", "IamInstanceProfile"} <= set(node["node_config"])
        assert node["node_config"]["MetadataOptions"] == {"HttpTokens": "required"}
        assert node["node_config"]["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True


def test_head_and_workers_ask_for_the_token(launcher):
    for name in ("head_start_ray_commands", "worker_start_ray_commands"):
        command = launcher[name][-1]
        assert "RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$HOME/.ray/auth_token" in command
        assert "ray start" in command
    assert "--dashboard-host=127.0.0.1" in launcher["head_start_ray_commands"][-1]


def test_workers_are_spot_machines_and_the_head_is_not(launcher):
    nodes = launcher["available_node_types"]
    assert nodes["gpu"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert "InstanceMarketOptions" not in nodes["head"]["node_config"]
    assert nodes["head"]["resources"]["CPU"] == 0
    assert launcher["max_workers"] >= nodes["gpu"]["max_workers"] > nodes["gpu"]["min_workers"] > 0


def test_a_trial_fits_a_worker(root, launcher):
    trial = load_cluster(root / "cluster/ray-aws.mlcl.yaml").trial
    resources = launcher["available_node_types"]["gpu"]["resources"]
    assert (trial.cpu, trial.gpu) <= (resources["CPU"], resources["GPU"])


def test_the_launchers_commands_are_shell(launcher):
    names = ("setup_commands", "head_setup_commands", "head_start_ray_commands", "worker_start_ray_commands")
    for command in [command for name in names for command in launcher[name]]:
        process = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr


def test_the_launcher_puts_the_storage_where_jobs_look_for_it(root, launcher):
    storage = load_cluster(root / "cluster/ray-aws.mlcl.yaml").storage
    assert any(storage in command for command in launcher["setup_commands"])
    assert any(
        f"{Path(storage).parent}" in command and "mount" in command for command in launcher["setup_commands"]
    )


def test_models_and_images_go_to_a_folder_that_the_launcher_makes_for_the_user(root, launcher):
    cluster = load_cluster(root / "cluster/ray-aws.mlcl.yaml")
    (install_command,) = [
        command for command in launcher["setup_commands"] if command.endswith(" /local/mlcl")
    ]
    assert install_command.startswith("sudo install -d -o ubuntu ")
    assert (cluster.cache, cluster.scratch) == ("/local/mlcl", "/local/mlcl")


def test_rays_default_installs_nothing_into_the_systems_python(launcher):
    names = ("setup_commands", "head_setup_commands", "worker_setup_commands")
    pips = [command for name in names for command in launcher[name] if "pip install" in command]
    assert pips
    assert all("~/venv/bin/python -m pip" in command for command in pips)
