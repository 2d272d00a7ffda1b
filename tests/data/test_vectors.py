"""Tests of data sets of vectors, which are written, read, checked and described."""

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
from mlcl.errors import UserError

SPACES = {"kind": LabelSpace(kind="single", classes=("a", "b"))}


@pytest.fixture
def written(write):
    """Returns a function that writes vectors as a data set, the last one in the test split."""

    def written(vectors):
        rows = len(vectors)
        batch = {"split": ["train"] * (rows - 1) + ["test"], "kind": [i % 2 for i in range(rows)]}
        return write(batch | {"vectors": vectors}, modality="vectors", dim=3, label_spaces=SPACES)

    return written


def test_vectors_come_back_as_float32(written):
    vectors = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    folder = written(vectors.tolist())
    data = Dataset.open(folder)
    assert data.info.dim == 3
    train = data.split("train")
    np.testing.assert_array_equal(train.vectors(), vectors[:4])
    np.testing.assert_array_equal(train.take(torch.tensor([2, 0])).vectors(), vectors[[2, 0]])
    with pytest.raises(UserError, match="has no texts"):
        train.texts()
    assert check(folder).rows == {"train": 4, "test": 1}
    max_norm = np.linalg.norm(vectors[:4], axis=1).max()
    assert describe(folder).content["norm_q100"] == pytest.approx(max_norm)


@pytest.mark.parametrize("vectors", [[[1.0, 2]] * 2, [[1.0, 2, 3], None], [[1.0, 2, 3], [1.0]]])
def test_rows_of_another_size_are_refused(written, tmp_path, vectors):
    with pytest.raises(UserError, match="values do not fit the column") as error:
        written(vectors)
    assert error.value.key == "vectors"
    assert not list(tmp_path.iterdir())


def test_a_number_that_is_not_finite_is_found(written):
    folder = written([[1.0, 2.0, 3.0], [1.0, float("nan"), 3.0], [0.0, 0.0, 1.0]])
    with pytest.raises(UserError, match=r"not finite at row 1, id r1"):
        check(folder)


def test_the_size_goes_with_vectors_alone_and_another_one_than_is_said_is_refused(written):
    folder = written([[1.0, 2.0, 3.0]] * 2)
    info = Dataset.open(folder).info.model_dump()
    for fields in ({"dim": None}, {"modality": "text"}):
        with pytest.raises(ValidationError, match="dim goes with modality vectors"):
            DatasetInfo.model_validate({**info, **fields})
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
    stored_vectors = {tuple(v) for name in data.info.rows for v in data.split(name).vectors().tolist()}
    assert stored_vectors == {tuple(v) for v in vectors}


@pytest.mark.parametrize(
    ("second", "found"), [("[1, 2]", "2 numbers"), ("words", "words"), ("[]", "0 numbers")]
)
def test_a_table_with_another_vector(second, found, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text(f'v,kind\n"[1, 2, 3]",a\n"{second}",b\n')
    options = {"path": str(table), "vectors": "v", "labels": LABELS}
    message = r"(no vector of the first row's size|no list of numbers) at line 3"
    with pytest.raises(UserError, match=message) as error:
        prepare("csv", tmp_path / "home", options)
    assert (error.value.key, error.value.found) == ("v", found)
