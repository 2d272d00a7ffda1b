"""Tests the allowed keys of cluster files, which cannot contain secrets."""

import pytest
import yaml

from mlcl.config.cluster import Reference, load_cluster
from mlcl.errors import UserError

FILE = {
    "ray": {"address": "https://head.lab:8265/", "token": {"env": "RAY_TOKEN"}},
    "mlflow": {"uri": "https://mlflow.lab", "username": {"env": "USER_"}, "password": {"file": "~/password"}},
    "storage": "/mnt/lab",
    "env": {"NCCL_DEBUG": "WARN", "HF_TOKEN": {"file": "/run/secrets/hf"}},
    "trial": {"gpu": 0.5, "cpu": 4},
}


@pytest.fixture
def load(tmp_path):
    def of(**changes):
        file = tmp_path / "lab.yaml"
        file.write_text(yaml.safe_dump(FILE | changes))
        return load_cluster(file)

    return of


def test_a_cluster_file_is_read(load):
    cluster = load()
    assert cluster.ray.address == "https://head.lab:8265"
    assert cluster.env["HF_TOKEN"] == Reference(file="/run/secrets/hf")
    assert (cluster.trial.gpu, cluster.working_dir.most_mib) == (0.5, 100)


@pytest.mark.parametrize(
    ("changes", "key", "text"),
    [
        ({"ray": {"address": "head:8265"}}, "ray.address", "http(s)://HOST:PORT"),
        ({"ray": {"address": "https://me:pw@head:8265"}}, "ray.address", "without user or password"),
        ({"ray": {"address": "http://h:1", "token": "hf_abc"}}, "ray.token", ""),
        ({"ray": {"address": "http://h:1", "token": {}}}, "ray.token", "exactly one of env and file"),
        ({"ray": {"address": "http://h:1", "token": {"env": "A B"}}}, "ray.token.env", ""),
        ({"mlflow": {"uri": "https://me:pw@mlflow"}}, "mlflow.uri", "without user and password"),
        ({"mlflow": {"uri": "http://m", "username": {"env": "U"}}}, "mlflow", "both username and password"),
        ({"storage": "s3://bucket/mlcl"}, "storage", "a file system that all nodes share"),
        ({"storage": "mlcl"}, "storage", "not an absolute path"),
        ({"cache": "models"}, "cache", "not an absolute path"),
        ({"scratch": "~/images"}, "scratch", "not an absolute path"),
        ({"env": {"HF_TOKEN": "hf_abc"}}, "env", "the value of HF_TOKEN may be a secret"),
        ({"env": {"AWS_SECRET_ACCESS_KEY": "abc"}}, "env", "may be a secret"),
        ({"env": {"MLCL_STUDY": "postgresql://me:pw@db/x"}}, "env", "MLCL_STUDY may be a secret"),
        ({"env": {"MLCL_STUDY": "postgresql://db/x?user=me&password=pw"}}, "env", "may be a secret"),
        ({"env": {"A=B": "1"}}, "env", "not the name of a variable"),
        ({"working_dir": {"most_mib": 500}}, "working_dir.most_mib", "100"),
        ({"rays": {}}, "rays", "did you mean ray"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_file_and_key(load, changes, key, text):
    with pytest.raises(UserError) as error:
        load(**changes)
    line = error.value.line()
    assert "\n" not in line
    assert "lab.yaml" in line
    assert str(error.value.key).startswith(key)
    assert text in line
    assert not any(secret in line for secret in ("hf_abc", "me:pw"))


def test_references_are_read_where_they_are_and_a_missing_secret_is_named_by_its_place(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_TOKEN", "abc\n")
    (tmp_path / "token").write_text("def\nand a comment\n")
    assert Reference(env="LAB_TOKEN").resolve("ray.token") == "abc"
    assert Reference(file=tmp_path / "token").resolve("ray.token") == "def"
    monkeypatch.delenv("LAB_TOKEN", raising=False)
    (tmp_path / "empty").touch()
    for reference, expected in (
        (Reference(env="LAB_TOKEN"), "LAB_TOKEN"),
        (Reference(file=tmp_path / "absent"), str(tmp_path / "absent")),
        (Reference(file=tmp_path / "empty"), str(tmp_path / "empty")),
    ):
        with pytest.raises(UserError) as error:
            reference.resolve("ray.token")
        assert (error.value.key, error.value.found) == ("ray.token", expected)
