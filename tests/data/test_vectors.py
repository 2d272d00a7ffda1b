"""Data sets of vectors: written, read, checked and described."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError

from mlcl.data import Dataset, LabelSpace, prepare
from mlcl.data.description import describe
from mlcl.data.format import DatasetInfo
from mlcl.data.validation import check
from mlcl.data.writer import write_dataset
from mlcl.errors import UserError

SPACES = {"kind": LabelSpace(kind="single", classes=("a", "b"))}


def write(folder, vectors, dim=3):
    rows = len(vectors)
    batch = {
        "id": [f"r{i}" for i in range(rows)],
        "split": ["train"] * (rows - 1) + ["test"],
        "vectors": vectors,
        "kind": [i % 2 for i in range(rows)],
    }
    about = {"name": "v", "modality": "vectors", "source": "s", "licence": "l"}
    write_dataset(folder, **about, dim=dim, label_spaces=SPACES, batches=[batch])
    return folder


def test_vectors_come_back_as_float32(tmp_path):
    given = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    data = Dataset.open(write(tmp_path / "data", given.tolist()))
    assert data.info.dim == 3
    train = data.split("train")
    np.testing.assert_array_equal(train.vectors(), given[:4])
    np.testing.assert_array_equal(train.take(torch.tensor([2, 0])).vectors(), given[[2, 0]])
    with pytest.raises(UserError, match="has no texts"):
        train.texts()
    assert check(tmp_path / "data").rows == {"train": 4, "test": 1}
    assert describe(tmp_path / "data").content["norm_q100"] == pytest.approx(
        np.linalg.norm(given[:4], axis=1).max()
    )


@pytest.mark.parametrize(
    "vectors", [[[1.0, 2.0], [1.0, 2.0]], [[1.0, 2.0, 3.0], None], [[1.0, 2.0, 3.0], [1.0]]]
)
def test_rows_of_another_size_are_refused(tmp_path, vectors):
    with pytest.raises(UserError, match="values do not fit the column") as error:
        write(tmp_path / "data", vectors)
    assert error.value.key == "vectors"
    assert not (tmp_path / "data").exists()


def test_a_number_that_is_not_finite_is_found(tmp_path):
    folder = write(tmp_path / "data", [[1.0, 2.0, 3.0], [1.0, float("nan"), 3.0], [0.0, 0.0, 1.0]])
    with pytest.raises(UserError, match=r"not finite at row 1, id r1"):
        check(folder)


def test_the_size_goes_with_vectors_alone(tmp_path):
    info = Dataset.open(write(tmp_path / "data", [[1.0, 2.0, 3.0]] * 2)).info.model_dump()
    for change in ({"dim": None}, {"modality": "text"}):
        with pytest.raises(ValidationError, match="dim goes with modality vectors"):
            DatasetInfo.model_validate({**info, **change})


def test_another_size_than_is_said_is_refused(tmp_path):
    folder = write(tmp_path / "data", [[1.0, 2.0, 3.0]] * 2)
    file = folder / "dataset.json"
    file.write_text(file.read_text().replace('"dim": 3', '"dim": 4'))
    assert pq.read_schema(folder / "train-00000.parquet").field("vectors").type.list_size == 3
    with pytest.raises(UserError, match="wrong column type"):
        Dataset.open(folder)


LABELS = {"kind": {"kind": "single", "column": "kind"}}


@pytest.mark.parametrize("source", ["parquet", "csv"])
def test_a_table_of_vectors(source, tmp_path):
    vectors = [[float(i), 0.5, -1.0] for i in range(30)]
    kinds = ["ab"[i % 2] for i in range(30)]
    table = tmp_path / f"rows.{source}"
    if source == "parquet":
        pq.write_table(pa.table({"v": vectors, "kind": kinds}), table)
    else:
        rows = [f'"{json.dumps(v)}",{kind}' for v, kind in zip(vectors, kinds, strict=True)]
        table.write_text("\n".join(["v,kind", *rows]))
    options = {"path": str(table), "vectors": "v", "labels": LABELS}
    data = Dataset.open(prepare(source, tmp_path / "home", options))
    assert data.info.dim == 3
    found = {tuple(v) for name in data.info.rows for v in data.split(name).vectors().tolist()}
    assert found == {tuple(v) for v in vectors}


@pytest.mark.parametrize(
    ("second", "found"), [("[1, 2]", "2 numbers"), ("words", "words"), ("[]", "0 numbers")]
)
def test_a_table_with_another_vector(second, found, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text(f'v,kind\n"[1, 2, 3]",a\n"{second}",b\n')
    options = {"path": str(table), "vectors": "v", "labels": LABELS}
    with pytest.raises(
        UserError, match=r"(no vector of the first row's size|no list of numbers) at line 3"
    ) as error:
        prepare("csv", tmp_path / "home", options)
    assert (error.value.key, error.value.found) == ("v", found)
