"""Tests that artifacts in a store on the same disk are links to the files of a run."""

import pytest

from mlcl.tracking import sender
from mlcl.tracking.sender import link_artifact


@pytest.fixture
def model(tmp_path):
    (tmp_path / "run" / "model" / "deep").mkdir(parents=True)
    (tmp_path / "run" / "model" / "a file").write_text("a")
    (tmp_path / "run" / "model" / "deep" / "weights").write_text("w")
    return tmp_path / "run" / "model"


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_folder_is_linked_file_by_file_and_again(model, tmp_path):
    store = tmp_path / "a store"
    for _ in range(2):
        assert link_artifact(model, store.as_uri(), "model")
        for name in ("a file", "deep/weights"):
            assert (store / "model" / name).samefile(model / name)
    (model / "new").write_text("b")
    (model / "new").replace(model / "a file")
    assert (store / "model" / "a file").read_text() == "a"
    (store / "model" / ".a file.0.partial").write_text("of a killed sender")
    assert link_artifact(model / "a file", (store / "model").as_uri(), "a file")
    assert names(store / "model") == {"a file", "deep"}
    assert (store / "model" / "a file").read_text() == "b"


@pytest.mark.parametrize("uri", ["mlflow-artifacts:/1/2", "s3://bucket/1", "file://elsewhere/folder"])
def test_other_stores_are_left_to_mlflow(model, uri):
    assert not link_artifact(model, uri, "model")


def test_a_disk_without_links_is_left_to_mlflow(model, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no links here")

    monkeypatch.setattr(sender.os, "link", refuse)
    assert not link_artifact(model, (tmp_path / "store").as_uri(), "model")
    assert names(tmp_path / "store" / "model") == set()
