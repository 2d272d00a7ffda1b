"""Tests the Kubernetes manifests against a strict schema, and their references to one another."""

import json
from importlib import metadata

import pytest
import yaml
from pydantic import TypeAdapter
from typer.main import get_command

from mlcl.cli.jobs import check_words
from mlcl.cli.main import app
from mlcl.config.cluster import Reference, load_cluster
from mlcl.service.jobs.submit import runtime_env

jsonschema = pytest.importorskip("jsonschema")


def manifest(root, name):
    return yaml.safe_load((root / "cluster" / "kuberay" / name).read_text())


def problems(root, tree):
    schema = json.loads((root / "tests" / "cluster" / "kuberay.schema.json").read_text())
    # The schema is chosen by kind, so that a message names the error.
    del schema["oneOf"]
    validator = jsonschema.Draft202012Validator(schema | {"$ref": f"#/$defs/{tree['kind']}"})
    errors = validator.iter_errors(tree)
    return [f"{error.json_path}: {error.message}" for error in errors]


@pytest.mark.parametrize("name", ["raycluster.yaml", "rayjob.yaml"])
def test_a_manifest_fits_the_schema(root, name):
    assert problems(root, manifest(root, name)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.gcsFaultTolerance", {"redisAddress": "redis:6379"}),
        ("spec.authOptions.mode", "disabled"),
        ("spec.headGroupSpec.template.spec.hostNetwork", True),
        ("spec.headGroupSpec.template.spec.securityContext.runAsUser", 0),
        ("spec.gcsFaultToleranceOptions.redisPassword", {"value": "in the open"}),
        ("spec.autoscalerOptions.securityContext.capabilities.drop", []),
    ],
)
def test_the_schema_refuses_typos_and_what_weakens(root, path, value):
    tree = manifest(root, "raycluster.yaml")
    *parents, last = path.split(".")
    node = tree
    for key in parents:
        node = node[key]
    node[last] = value
    messages = problems(root, tree)
    assert messages
    assert all(last in message for message in messages)


def test_the_job_brings_the_same_cluster(root):
    assert (
        manifest(root, "rayjob.yaml")["spec"]["rayClusterSpec"] == manifest(root, "raycluster.yaml")["spec"]
    )


def test_ray_is_the_version_that_is_installed(root):
    assert manifest(root, "raycluster.yaml")["spec"]["rayVersion"] == metadata.version("ray")


def test_every_mounted_volume_is_there(root):
    spec = manifest(root, "raycluster.yaml")["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == volumes
        assert volumes >= {"storage"}


def test_models_and_images_go_to_a_volume_that_is_large_enough(root):
    cluster, spec = (
        load_cluster(root / "cluster/kuberay/kuberay.mlcl.yaml"),
        manifest(root, "raycluster.yaml")["spec"],
    )
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for folder in (cluster.cache, cluster.scratch):
            claim = volumes[mounts[folder]]["ephemeral"]["volumeClaimTemplate"]["spec"]
            assert claim["resources"]["requests"]["storage"] == "200Gi"
    variables = yaml.safe_load(manifest(root, "rayjob.yaml")["spec"]["runtimeEnvYAML"])["env_vars"]
    job_variables = runtime_env(cluster, "id", root)["env_vars"]
    assert {name: variables[name] for name in ("HF_HOME", "MLCL_SCRATCH")} == {
        "HF_HOME": job_variables["HF_HOME"],
        "MLCL_SCRATCH": job_variables["MLCL_SCRATCH"],
    }


def test_the_job_finds_its_secrets_and_the_storage(root):
    tree, cluster = manifest(root, "rayjob.yaml"), load_cluster(root / "cluster/kuberay/kuberay.mlcl.yaml")
    variables = yaml.safe_load(tree["spec"]["runtimeEnvYAML"])["env_vars"]
    references = TypeAdapter(dict[str, Reference]).validate_json(variables["MLCL_REFERENCES"])
    assert references == {
        "MLFLOW_TRACKING_USERNAME": cluster.mlflow.username,
        "MLFLOW_TRACKING_PASSWORD": cluster.mlflow.password,
    }
    assert variables["MLFLOW_TRACKING_URI"] == cluster.mlflow.uri
    assert variables["MLCL_HOME"] == cluster.storage
    head = tree["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    mount_paths = [mount["mountPath"] for mount in head["volumeMounts"]]
    assert all(
        any(str(reference.file).startswith(f"{path}/") for path in mount_paths)
        for reference in references.values()
    )


def test_the_jobs_command_is_one_that_mlcl_takes(root):
    words = manifest(root, "rayjob.yaml")["spec"]["entrypoint"].replace("/opt/mlcl", str(root)).split()
    assert words[:3] == ["python", "-m", "mlcl.cli.job_entrypoint"]
    assert check_words(get_command(app), words[3:], root)
