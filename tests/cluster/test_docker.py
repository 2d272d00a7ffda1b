"""Tests the image and the compose file as far as possible without a container engine."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from project import PROJECT

from mlcl.config.cluster import load_cluster


def tool(name):
    return shutil.which(name) or shutil.which(name, path=Path(sys.executable).parent)


HADOLINT, CHECK_JSONSCHEMA = tool("hadolint"), tool("check-jsonschema")


@pytest.fixture(scope="module")
def compose(root):
    return yaml.safe_load((root / "docker" / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def dockerfile(root):
    return (root / "docker" / "Dockerfile").read_text().replace("\\\n", "")


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed")
def test_hadolint_has_nothing_to_say(root):
    process = subprocess.run(
        [HADOLINT, root / "docker/Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stdout) == (0, "")


@pytest.mark.skipif(CHECK_JSONSCHEMA is None, reason="check-jsonschema is not installed")
@pytest.mark.parametrize("name", ["compose.yaml", "compose.gpu.yaml"])
def test_compose_files_follow_the_specification(root, name):
    command = [CHECK_JSONSCHEMA, "--builtin-schema", "vendor.compose-spec", root / "docker" / name]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout


def test_only_loopback_is_published(compose):
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 2
    assert all(port.startswith(("127.0.0.1:", "${MLCL_MLFLOW_ADDRESS:-127.0.0.1}:")) for port in ports)


def test_every_container_is_locked_and_checked(compose):
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        # Services that run the image of the Dockerfile have its health check.
        assert "healthcheck" in service or service["image"] == "mlcl:cpu", name


def test_stores_are_reached_by_mlflow_alone(compose):
    assert compose["networks"]["stores"] == {"internal": True}
    services = {
        name for name, service in compose["services"].items() if "stores" in service.get("networks", [])
    }
    assert services == {"postgres", "s3", "bucket", "mlflow"}
    assert [name for name in services if "default" in compose["services"][name]["networks"]] == ["mlflow"]


def test_secrets_are_files_and_nothing_else(compose):
    secret_names = {name for service in compose["services"].values() for name in service.get("secrets", [])}
    assert secret_names == set(compose["secrets"])
    assert all(secret["file"].startswith("secrets/") for secret in compose["secrets"].values())
    pattern = re.compile("PASSWORD|SECRET|TOKEN|CREDENTIAL")
    assert pattern.search(
        json.dumps([service.get("environment") for service in compose["services"].values()])
    )
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if pattern.search(name):
                assert value.removeprefix("/run/secrets/") in service["secrets"], name
        assert "password" not in json.dumps(service.get("command", "")).lower()


def test_models_and_images_go_to_a_volume(root, compose, dockerfile):
    cluster = load_cluster(root / "docker/cluster.yaml")
    assert (cluster.cache, cluster.scratch) == ("/local", "/local")
    for name in ("head", "worker"):
        assert "local:/local" in compose["services"][name]["volumes"]
        assert "local:/local" not in compose["services"][name]["tmpfs"]
    assert "local" in compose["volumes"]
    # A new volume has the owner of the image's folder.
    assert re.search(r"install --directory --owner mlcl .* /local$", dockerfile, re.MULTILINE)


def test_every_image_is_pinned_to_a_version(compose, dockerfile):
    images = {service["image"] for service in compose["services"].values()} - {"mlcl:cpu"}
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", dockerfile, re.MULTILINE))
    images |= set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)) - stages
    assert len(images) == 3
    assert all(re.search(r":v?\d+\.\d+", image) for image in images)


def test_the_image_is_built_for_cpu_and_gpu_and_runs_as_a_user(dockerfile):
    stages = re.findall(r"^FROM (\S+) AS (cpu|gpu)$", dockerfile, re.MULTILINE)
    assert stages == [("runtime", "cpu"), ("runtime", "gpu")]
    runtime = dockerfile.partition("AS runtime")[2]
    assert re.findall(r"^USER (\S+)", dockerfile, re.MULTILINE) == ["$UID"]
    assert "USER $UID" in runtime
    assert "HEALTHCHECK" in runtime


def test_the_image_gets_what_exists(root, dockerfile):
    extras = set(PROJECT["optional-dependencies"])
    installed_extras = [set(text.split(",")) for text in re.findall(r'"\.\[([a-z0-9,]+)\]"', dockerfile)]
    assert len(installed_extras) == 1
    assert installed_extras[0] <= extras
    for target in ("cpu", "gpu"):
        stage = dockerfile.partition(f"FROM runtime AS {target}\n")[2].partition("FROM ")[0]
        assert "COPY --from=build /opt/mlcl/venv /opt/mlcl/venv" in stage
    ignore_lines = (root / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    copy_lines = re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE)
    assert copy_lines
    for source in " ".join(copy_lines).split():
        assert (root / source).exists(), source
        assert f"!{source}" in ignore_lines, source


@pytest.mark.parametrize(("options", "left"), [("", 3), ("--pre", 1)])
def test_an_image_for_older_drivers_has_pytorch_for_an_older_cuda(dockerfile, tmp_path, options, left):
    (run,) = re.findall(r"^ARG TORCH_OPTIONS.*?^RUN (.*?)$", dockerfile, re.MULTILINE | re.DOTALL)
    (tmp_path / "pip").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "pip").chmod(0o755)
    (tmp_path / "constraints.txt").write_text("cuda-toolkit==13.2\nnvidia-cublas==13.4\ntorch==2.15.0\n")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TORCH_OPTIONS": options}
    process = subprocess.run(
        ["sh", "-c", run], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    arguments = ["install", "--no-cache-dir", "--constraint", "constraints.txt"]
    assert process.stdout.split() == [*arguments, *options.split(), ".[all]"]
    # Libraries of another CUDA version would not fit the PyTorch that is chosen.
    assert len((tmp_path / "constraints.txt").read_text().splitlines()) == left


def test_nothing_secret_gets_into_a_layer(root, dockerfile):
    ignore_lines = (root / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignore_lines[1] == "*"
    assert not any("secret" in line or ".env" in line for line in ignore_lines[2:])
    assert not re.search("(ARG|ENV).*(PASSWORD|SECRET|CREDENTIAL)", dockerfile)


def copied_script(root, folder):
    shutil.copy(root / "docker" / "secret_files.sh", folder)
    return shutil.copy(root / "docker" / "make_secrets.sh", folder)


def test_secrets_are_made_once_and_for_oneself(root, tmp_path):
    script = copied_script(root, tmp_path)
    subprocess.run([script], check=True)
    files = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    subprocess.run([script], check=True)
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == files
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "secrets").iterdir())
    (identity,) = json.loads(files["s3_server.json"])["identities"]
    assert identity["credentials"][0]["secretKey"] in files["s3_client.ini"]
    assert (
        len({files[name] for name in ("ray_token", "postgres_password", "mlflow_password", "mlflow_key")})
        == 4
    )


def test_every_secret_is_made(compose, root, tmp_path):
    subprocess.run([copied_script(root, tmp_path)], check=True)
    assert {Path(secret["file"]).name for secret in compose["secrets"].values()} == {
        path.name for path in (tmp_path / "secrets").iterdir()
    }


def test_the_entrypoint_reads_secrets_from_files(root, tmp_path):
    (tmp_path / "password").write_text("s3cret\n")
    command = [root / "docker" / "entrypoint.sh", "sh", "-c", "echo $PGPASSWORD"]

    def run(file):
        variables = {"PATH": "/usr/bin:/bin", "PGPASSWORD_FILE": str(file)}
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    assert run(tmp_path / "password").stdout == "s3cret\n"
    assert run(tmp_path / "missing").returncode != 0
