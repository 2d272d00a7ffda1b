import os
import signal
import subprocess
import sys
from dataclasses import replace
from unittest.mock import Mock

import pytest
from patience import until

from mlcl.data import Dataset
from mlcl.errors import UserError


def test_shards_hold_one_split_and_at_most_their_rows_in_batches_of_any_size(write, batch):
    info = Dataset.open(write(batch, "whole", shard_rows=10)).info
    rows = {"train-00000": 10, "train-00001": 10, "train-00002": 4, "validation-00000": 8, "test-00000": 8}
    assert {shard.file: shard.rows for shard in info.shards} == {f"{k}.parquet": n for k, n in rows.items()}
    batches = [{name: values[i : i + 3] for name, values in batch.items()} for i in range(0, 40, 3)]
    assert Dataset.open(write(None, "parts", shard_rows=10, batches=batches)).info == info


def test_the_same_data_again_is_accepted_and_other_data_refused(write, batch):
    folder = write(batch)
    mtime = (folder / "dataset.json").stat().st_mtime_ns
    write(batch)
    assert (folder / "dataset.json").stat().st_mtime_ns == mtime
    batch["topic"][0] = 1
    with pytest.raises(UserError, match="another data set is there"):
        write(batch)
    assert (folder / "dataset.json").stat().st_mtime_ns == mtime


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("topic", "sport", "key topic: values do not fit"), ("ratings", [1], "key ratings: values do not fit"),
     ("text", 5, "key text: values do not fit"),
     ("split", "dev", "key split: unknown split; found: dev")],
)  # fmt: skip
def test_values_that_do_not_fit_leave_nothing(write, batch, tmp_path, column, value, message):
    batch[column][7] = value
    with pytest.raises(UserError, match=f"^{message}"):  # without the scratch folder
        write(batch)
    assert list(tmp_path.iterdir()) == []


def test_no_rows_missing_columns_and_a_full_disk_leave_nothing(write, batch, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"^no rows"):
        write(None, batches=[])
    with pytest.raises(UserError, match="key tags: column is missing"):
        write({name: values for name, values in batch.items() if name != "tags"})
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    with pytest.raises(UserError, match=r"cannot be written.*No space left"):
        write(batch)
    assert list(tmp_path.iterdir()) == []


def test_killed_half_way_leaves_no_folder_and_the_next_run_cleans_up(tmp_path):
    program = (
        "import sys; from pathlib import Path; from mlcl.data import prepare\n"
        "prepare('digits', Path(sys.argv[1]), {'scenes': 200_000})"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    try:
        until(lambda: list(tmp_path.glob(".digits-*.partial")) or process.poll() is not None)
        assert process.poll() is None
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    (partial_folder,) = tmp_path.glob(".digits-*.partial")
    name = partial_folder.name.removeprefix(".").rsplit(".", 2)[0]
    assert not (tmp_path / name).exists()

    from mlcl.data import prepare, sources
    from mlcl.data.sources.digits import SOURCE, Options

    with pytest.MonkeyPatch.context() as patch:
        # The options, and so the folder, are the same, but the data are small enough for a test.
        small_source = replace(
            SOURCE, read=lambda _, *arguments: SOURCE.read(Options(scenes=100), *arguments)
        )
        patch.setattr(sources, "find_source", lambda _: small_source)
        folder = prepare("digits", tmp_path, {"scenes": 200_000})
    assert folder.name == name
    assert not list(tmp_path.glob(".digits-*.partial"))
