"""Tests that maliciously prepared data sets give one clear error, in `mlcl data check` and when read."""

import hashlib
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcl.data import Dataset
from mlcl.data.validation import check
from mlcl.errors import UserError


@pytest.fixture
def folder(tiny, tmp_path):
    return shutil.copytree(tiny, tmp_path / "set")


def read(folder):
    data = Dataset.open(folder)
    split = data.split("train")
    return split.texts(), [split.labels(name) for name in data.info.label_spaces]


def refusals(folder):
    for reader in (check, read):
        with pytest.raises(UserError) as error:
            reader(folder)
        yield error.value.line()


def rehash(folder):
    """Updates the checksums in `dataset.json` after the shards were changed, as a forger would."""
    file = folder / "dataset.json"
    info = json.loads(file.read_text())
    for shard in info["shards"]:
        shard["sha256"] = hashlib.sha256((folder / shard["file"]).read_bytes()).hexdigest()
    file.write_text(json.dumps(info))


def column(folder, name, values):
    file = next(folder.glob("train*.parquet"))
    table = pq.read_table(file)
    index = table.column_names.index(name)
    pq.write_table(table.set_column(index, name, values(len(table))), file)
    rehash(folder)


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"rows":' * 100_000, '{"rows": ' + "9" * 10_000 + "}", '{"rows": NaN}', "\0", "[]"],
    ids=["deep lists", "deep mappings", "many digits", "no number", "null byte", "no mapping"],
)
def test_a_hostile_dataset_json(folder, text):
    (folder / "dataset.json").write_text(text)
    for line in refusals(folder):
        assert "dataset.json" in line
        assert len(line) < 1_000


def test_rows_that_are_declared_and_not_there(folder):
    file = folder / "dataset.json"
    info = json.loads(file.read_text())
    info["rows"]["train"] += 10**15
    info["shards"][0]["rows"] += 10**15
    file.write_text(json.dumps(info))
    for line in refusals(folder):
        assert "wrong number of rows" in line


def test_rows_of_no_split(folder):
    column(folder, "split", lambda rows: pa.nulls(rows, pa.string()))
    check_line, read_line = refusals(folder)
    assert "unknown split at row 0" in check_line
    assert "key rows.train: the shards have another number of rows; found: 48; allowed: 0" in read_line


def test_bytes_that_are_no_text(folder):
    column(folder, "text", lambda rows: pa.array([b"\xff\xfe"] * rows, pa.binary()).view(pa.string()))
    for line in refusals(folder):
        assert "Invalid UTF8" in line
        assert "train" in line


@pytest.mark.parametrize("length", [b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff\xff\xff\xff"])
def test_a_footer_of_another_length(folder, length):
    file = next(folder.glob("train*.parquet"))
    content = file.read_bytes()
    file.write_bytes(content[:-8] + length + content[-4:])
    rehash(folder)
    for line in refusals(folder):
        assert file.name in line


def test_a_shard_s_name_stays_in_the_folder(folder, tmp_path):
    file = folder / "dataset.json"
    info = json.loads(file.read_text())
    shutil.copy(folder / info["shards"][0]["file"], tmp_path / "out.parquet")
    for name in ("../out.parquet", str(tmp_path / "out.parquet"), "a/../../out.parquet", "x.parquet\n"):
        info["shards"][0]["file"] = name
        file.write_text(json.dumps(info))
        for line in refusals(folder):
            assert "key shards.0.file" in line
