"""Tests of models on a cluster's storage: one copy on each machine, and enough free space for it."""

from types import SimpleNamespace

import pytest
from commands import mlcl
from tiny_models import FILES, with_files

from mlcl.errors import MachineError, UserError
from mlcl.models import model_storage
from mlcl.models.model_folder import model_folder

huggingface_hub = pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.usefixtures("no_network")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def free(monkeypatch):
    """Returns a function that sets the free bytes of every disk."""

    def left(count):
        monkeypatch.setattr(model_storage.shutil, "disk_usage", lambda _: SimpleNamespace(free=count))

    return left


def test_a_model_is_put_on_storage_and_copied_once_to_a_machine(tmp_path, cache, monkeypatch):
    source = with_files(tmp_path / "bert", (*FILES, "pytorch_model.bin"))
    (source / "config.json").write_text("{}")
    uri = (tmp_path / "storage" / "bert").as_uri()
    answer = mlcl("models", "fetch", source, "--to", uri)
    assert (answer.status, answer.out) == (0, f"encoder.model={uri}\n"), answer.err
    assert {file.name for file in (tmp_path / "storage" / "bert").iterdir()} == set(FILES)
    assert "already exists" in mlcl("models", "fetch", source, "--to", uri).err
    folder = model_folder(uri)
    assert (folder.parent, (folder / "config.json").read_text()) == (cache / "mlcl", "{}")
    with monkeypatch.context() as patch:
        patch.setattr(model_storage, "_copy_files", lambda *_, **__: pytest.fail("copied again"))
        assert model_folder(uri) == folder
    (tmp_path / "storage" / "bert" / "config.json").write_text('{"changed": 1}')
    assert "changed" in (model_folder(uri) / "config.json").read_text()


@pytest.mark.parametrize("done", range(len(FILES)))
def test_a_copy_that_is_stopped_is_no_model_and_is_begun_again(tmp_path, monkeypatch, done):
    source, target = with_files(tmp_path / "bert"), tmp_path / "storage"
    with monkeypatch.context() as patch:
        copies, copy = iter(range(done)), model_storage.shutil.copyfileobj

        def copy_some(*arguments):
            if next(copies, None) is None:
                raise KeyboardInterrupt
            copy(*arguments)

        patch.setattr(model_storage.shutil, "copyfileobj", copy_some)
        with pytest.raises(KeyboardInterrupt):
            model_storage.store_model(source, target.as_uri())
    with pytest.raises(UserError, match="no model is there"):
        model_folder(target.as_uri())
    model_storage.store_model(source, target.as_uri())
    assert {file.name for file in model_folder(target.as_uri()).iterdir()} == set(FILES)
    (target / "notes.txt").touch()
    (target / "config.json").unlink()
    with pytest.raises(UserError, match="already exists"):
        model_storage.store_model(source, target.as_uri())


def test_no_model_and_no_filesystem_are_named(tmp_path):
    for uri, problem in (((tmp_path / "none").as_uri(), "no model"), ("hf2://a/b", "no filesystem")):
        with pytest.raises(UserError, match=problem):
            model_folder(uri)


def test_a_disk_without_room_is_known_before_a_copy(tmp_path, cache, free):
    source = with_files(tmp_path / "bert")
    (source / "model.safetensors").write_bytes(bytes(2**20))
    free(2**20 - 1)
    with pytest.raises(MachineError, match=r"no room for file://.*cluster file: cache"):
        model_folder(source.as_uri())
    assert not any(cache.rglob("*.safetensors"))
    free(2**20)
    assert (model_folder(source.as_uri()) / "model.safetensors").stat().st_size == 2**20


def test_a_disk_without_room_is_known_before_a_download(tmp_path, monkeypatch, free):
    siblings = [SimpleNamespace(rfilename=name, size=size) for name, size in
              {"config.json": 5, "model.safetensors": 2**30, "pytorch_model.bin": 2**40}.items()]  # fmt: skip
    monkeypatch.setattr(
        huggingface_hub.HfApi, "model_info", lambda *_, **__: SimpleNamespace(siblings=siblings)
    )
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    downloads = []
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda name, **_: downloads.append(name) or with_files(tmp_path / "a"),
    )
    free(2**30)
    with pytest.raises(MachineError, match=r"no room for some/bert: it has 1\.0 GiB"):
        model_folder("some/bert")
    assert downloads == []
    free(2**30 + 5)
    assert model_folder("some/bert") == tmp_path / "a"
