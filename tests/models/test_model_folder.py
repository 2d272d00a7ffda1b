"""Tests that a pretrained model is found in a folder, in an installed package, or in the hub's cache."""

import pytest
from tiny_models import FILES, with_files

from mlcl.errors import UserError
from mlcl.models.model_folder import model_folder

huggingface_hub = pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.usefixtures("no_network")


@pytest.mark.parametrize("more", [(), ("pytorch_model.bin",)])
def test_a_folder_may_be_below_the_home(tmp_path, monkeypatch, more):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = with_files(tmp_path / "bert", FILES + more)
    assert model_folder(folder) == model_folder("~/bert") == folder


@pytest.mark.parametrize(
    ("names", "problem"),
    [(None, "no such folder"), ((), r"no config\.json"), (FILES[:1], "no weights"),
     (FILES[:2], "no tokenizer"),
     (("config.json", "pytorch_model.bin"), "pickled.*safetensors"),
     ((*FILES, "adapter_config.json"), "merge it")],
)  # fmt: skip
def test_a_folder_that_is_no_model(tmp_path, names, problem):
    if names is not None:
        with_files(tmp_path / "model", names)
    with pytest.raises(UserError, match=rf"encoder\.model.*{problem}"):
        model_folder(tmp_path / "model")


def test_a_name_on_the_hub_is_read_from_the_cache_without_a_network(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository_folder = tmp_path / "models--some--bert"
    snapshot = with_files(repository_folder / "snapshots" / "0123")
    (repository_folder / "refs").mkdir()
    (repository_folder / "refs" / "main").write_text("0123")
    assert model_folder("some/bert") == snapshot
    with pytest.raises(UserError, match=r"encoder\.model.*no/such-model"):
        model_folder("no/such-model")


def test_neither_pickles_nor_code_are_fetched(tmp_path, monkeypatch):
    allowed_files = (*FILES, "vocab.txt", "tokenizer.model")
    other_files = ("pytorch_model.bin", "modeling_own.py", "original/params.json", "onnx/model.safetensors")
    downloads = {}

    def fetch(name, **patterns):
        downloads[name] = tuple(
            huggingface_hub.utils.filter_repo_objects([*allowed_files, *other_files], **patterns)
        )
        return with_files(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    model_folder("some/bert")
    assert downloads == {"some/bert": allowed_files}


def test_a_network_that_fails_in_its_own_way(monkeypatch):
    class ProxyError(Exception):
        pass

    def fetch(*args, **options):
        raise ProxyError("407 Proxy Authentication Required")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    with pytest.raises(UserError, match=r"encoder\.model.*some/bert \(407 Proxy"):
        model_folder("some/bert")


@pytest.fixture
def packages(monkeypatch, tmp_path):
    """Returns a function that lists files as those of an installed Python package."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(name, *files):
        info = with_files(tmp_path / f"{name}-1.0.dist-info", ())
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        return tmp_path

    return install


def test_a_model_inside_a_python_package_that_is_not_imported(packages):
    site = packages("tiny_bert", "tiny_bert/__init__.py", *(f"tiny_bert/model/{name}" for name in FILES))
    folder = with_files(site / "tiny_bert" / "model")
    (site / "tiny_bert" / "__init__.py").write_text("raise RuntimeError('imported')")
    assert model_folder("package:tiny_bert") == model_folder("package:tiny-bert") == folder


def test_python_packages_without_a_model_or_with_two(packages):
    packages("plain", "plain/__init__.py", "plain/config.json")
    site = packages("double", *(f"double/{i}/{name}" for i in "ab" for name in FILES))
    for i in "ab":
        with_files(site / "double" / i)
    packages("gone", "gone/config.json", "gone/model.safetensors")
    for name, problem in {
        "absent": "not installed",
        "": "not installed",
        "plain": "not exactly one model.*package:plain",
        "double": "not exactly one model.*double/a, double/b",
        # Once some library has imported importlib_metadata, files that are gone are no longer listed.
        "gone": "no such folder|not exactly one model",
    }.items():
        with pytest.raises(UserError, match=problem) as excinfo:
            model_folder(f"package:{name}")
        assert excinfo.value.key == "encoder.model"
