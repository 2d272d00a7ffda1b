"""Tests that the manifests of MLflow, PostgreSQL, Redis and storage have all that Ray's cluster refers to."""

import shutil
import subprocess

import pytest
import yaml


@pytest.fixture
def folder(root):
    return root / "cluster" / "kuberay"


@pytest.fixture
def kustomization(root):
    """Returns the Kustomize file that adds the secrets."""
    return yaml.safe_load((root / "docker" / "kuberay" / "kustomization.yaml").read_text())


@pytest.fixture
def manifests(folder):
    return [
        tree
        for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
        for tree in yaml.safe_load_all((folder / name).read_text())
    ]


LOCKED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def templates(manifests):
    """Returns the pod templates of all workloads, by kind and name of the workload."""
    pods = {}
    for tree in manifests:
        spec = tree.get("spec", {})
        for group in (spec, spec.get("headGroupSpec", {}), *spec.get("workerGroupSpecs", ())):
            if "template" in group:
                pods[tree["kind"], group.get("groupName", tree["metadata"]["name"])] = group["template"]
    return pods


def every(tree, key):
    """Yields the values of a key at any depth."""
    if isinstance(tree, dict):
        yield from ([tree[key]] if key in tree else [])
        for value in tree.values():
            yield from every(value, key)
    elif isinstance(tree, list):
        for value in tree:
            yield from every(value, key)


def test_secrets_claims_and_configurations_that_are_referred_to_are_there(manifests, kustomization):
    files_by_secret = {
        generator["name"]: generator["files"] for generator in kustomization["secretGenerator"]
    }
    secret_names = {
        *every(manifests, "secretName"),
        *(reference["name"] for reference in every(manifests, "secretKeyRef")),
    }
    assert secret_names == set(files_by_secret)
    kinds = {(tree["kind"], tree["metadata"]["name"]) for tree in manifests}
    for claim in every(manifests, "claimName"):
        assert ("PersistentVolumeClaim", claim) in kinds
    for configuration in every(manifests, "configMap"):
        assert ("ConfigMap", configuration["name"]) in kinds
    for account in every(manifests, "serviceAccountName"):
        assert ("ServiceAccount", account) in kinds
    assert kustomization["generatorOptions"] == {"disableNameSuffixHash": True}
    assert kustomization["resources"] == ["../../cluster/kuberay"]


def test_the_script_makes_every_secret_once_and_for_oneself(root, kustomization, tmp_path):
    folder = tmp_path / "kuberay"
    folder.mkdir()
    shutil.copy(root / "docker" / "secret_files.sh", tmp_path)
    script = shutil.copy(root / "docker" / "kuberay" / "make_secrets.sh", folder)
    contents = []
    for _ in range(2):
        subprocess.run(["sh", script], check=True)
        contents.append({file.name: file.read_text() for file in (folder / "secrets").iterdir()})
    files = [
        file.rpartition("=")[2]
        for generator in kustomization["secretGenerator"]
        for file in generator["files"]
    ]
    assert sorted(f"secrets/{name}" for name in contents[0]) == sorted(files)
    assert contents[0] == contents[1]
    assert all(file.stat().st_mode & 0o077 == 0 for file in (folder / "secrets").iterdir())
    assert "kuberay/secrets/" in (root / "docker" / ".gitignore").read_text().splitlines()


def test_each_service_leads_to_one_workload_at_the_address_that_others_use(manifests):
    services = {tree["metadata"]["name"]: tree["spec"] for tree in manifests if tree["kind"] == "Service"}
    for service in services.values():
        (workload,) = [
            template
            for template in templates(manifests).values()
            if service["selector"].items() <= template.get("metadata", {}).get("labels", {}).items()
        ]
        (port,), (container,) = service["ports"], workload["spec"]["containers"]
        assert [port["port"]] == [container_port["containerPort"] for container_port in container["ports"]]
    text = yaml.safe_dump(manifests)
    assert {"redis", "postgres", "mlflow"} == set(services)
    assert "redisAddress: redis:6379" in text
    assert text.count("postgresql+psycopg://mlflow@postgres/mlflow") == 2


def test_every_container_is_locked_and_pinned(manifests):
    pod_templates = templates(manifests)
    assert len(pod_templates) == 5
    for (_, name), template in pod_templates.items():
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        (container,) = pod["containers"]
        assert container["securityContext"] == LOCKED, name
        assert not container["image"].endswith("latest"), name
        assert ":" in container["image"], name
        assert "limits" in container["resources"], name
        mount_names = {mount["name"] for mount in container["volumeMounts"]}
        assert mount_names >= {volume["name"] for volume in pod["volumes"]}, name


def test_pods_are_reached_from_the_namespace_and_the_operator_alone(manifests):
    (policy,) = [tree["spec"] for tree in manifests if tree["kind"] == "NetworkPolicy"]
    assert policy["podSelector"] == {}
    (rule,) = policy["ingress"]
    assert [list(peer) for peer in rule["from"]] == [["podSelector"], ["namespaceSelector"]]
