"""Tests that cache entries are listed and removed, except those that another process is writing."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from typer.testing import CliRunner

from mlcl.cli.data import app
from mlcl.data import Dataset, decode_all
from mlcl.data.cache_entries import ABOUT, cache_entries, read_cached, remove_entry
from mlcl.errors import UserError
from mlcl.models.encoders.features import TfidfInput
from mlcl.service.doctor.checks import Scope
from mlcl.service.doctor.home_checks import find_partial_files
from mlcl.testing.datasets import small_dataset
from mlcl.training.features.cache import FeatureCache


def fill(home):
    for modality in ("text", "image"):
        small_dataset(home / modality, modality)
    return ask(home)


def ask(home):
    """Returns TF-IDF rows and pixels, computed or read from the cache; TF-IDF's terms are cached too."""
    texts, images = (Dataset.open(home / modality).split("train") for modality in ("text", "image"))
    features = FeatureCache(home / "cache", texts)
    rows = features.rows("tfidf", TfidfInput(), texts)
    features.extractor("tfidf", TfidfInput())
    return rows.toarray(), decode_all(images.take(torch.arange(4)), 8, home / "cache").pixels


@pytest.mark.parametrize("damage", ["gone", "empty", "cut off"])
def test_a_damaged_file_is_computed_again(tmp_path, damage):
    expected_values = fill(tmp_path)
    files = [file for entry in cache_entries(tmp_path) for file in (entry.path, *entry.path.glob("*"))]
    contents = {file: file.read_bytes() for file in files if file.is_file() and file.name != ABOUT}
    for file, content in contents.items():
        file.unlink()
        if damage != "gone":
            file.write_bytes(b"" if damage == "empty" else content[: len(content) // 2])
        for actual, expected in zip(ask(tmp_path), expected_values, strict=True):
            np.testing.assert_array_equal(actual, expected)
        ask(tmp_path)
    assert {file: file.read_bytes() for file in contents} == contents


def test_what_is_there_and_how_large(tmp_path):
    fill(tmp_path)
    entries = cache_entries(tmp_path)
    assert sorted(entry.kind for entry in entries) == ["features", "features", "images"]
    assert {entry.about for entry in entries} == {"tfidf of small texts", ""}
    assert all(entry.bytes > 0 for entry in entries)
    (images,) = (entry for entry in entries if entry.kind == "images")
    assert images.bytes == images.path.stat().st_size

    # An entry that another process is writing is kept.
    entry, other, _ = sorted(entries, key=lambda entry: entry.kind)
    with FileLock(entry.path.with_name(f".{entry.path.name}.lock")):
        assert not remove_entry(entry)
    assert entry.path.exists()
    assert remove_entry(other)
    assert not other.path.exists()


def test_the_command_removes_all_and_says_so(tmp_path):
    fill(tmp_path)
    runner = CliRunner()
    dry_run = runner.invoke(app, ["clean", "--dry-run", "--json", "--home", str(tmp_path)])
    report = json.loads(dry_run.output)
    assert report["bytes"] == sum(entry.bytes for entry in cache_entries(tmp_path)) > 0
    assert [entry["removed"] for entry in report["entries"]] == [False] * 3
    result = runner.invoke(app, ["clean", "--home", str(tmp_path)])
    assert "tfidf of small texts" in result.output
    assert "removed 3 entries" in result.output
    assert cache_entries(tmp_path) == []
    assert "removed 0 entries" in runner.invoke(app, ["clean", "--home", str(tmp_path)]).output


def test_the_doctor_finds_what_a_killed_extraction_left(tmp_path):
    fill(tmp_path)
    entry = next(entry for entry in cache_entries(tmp_path) if entry.kind == "features")
    partial_folder = entry.path.with_name(f".{entry.path.name}.abc.partial")
    partial_folder.mkdir()
    with FileLock(entry.path.with_name(f".{entry.path.name}.lock")):
        assert list(find_partial_files(Scope(tmp_path, "none"))) == []
    (finding,) = find_partial_files(Scope(tmp_path, "none"))
    assert finding.mend is not None
    finding.mend()
    assert not partial_folder.exists()
    assert entry.path.exists()


def test_one_of_several_writes_an_entry_and_the_others_wait(tmp_path):
    entry, paths = tmp_path / "cache" / "kind" / "entry", []

    def write(path):
        paths.append(path)
        time.sleep(0.05)
        path.write_text("content")

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(read_cached, entry, write, Path.read_text) for _ in range(4)]
    assert [future.result() for future in futures] == ["content"] * 4
    assert len(paths) == 1


def test_a_damaged_entry_that_another_process_has_written_again_is_kept(tmp_path):
    entry = tmp_path / "entry"
    entry.write_text("dama")

    def read(path):
        if (content := path.read_text()) == "whole":
            return content
        path.write_text("whole")  # as another process would, before this one gets the lock
        raise ValueError("damaged")

    assert read_cached(entry, lambda _: pytest.fail("written again"), read) == "whole"


def test_a_damaged_entry_is_removed_under_the_lock_alone(tmp_path):
    entry = tmp_path / "entry"
    entry.write_text("damaged")
    with ThreadPoolExecutor(1) as pool:
        with FileLock(tmp_path / ".entry.lock"):
            future = pool.submit(read_cached, entry, lambda path: path.write_text("1"), _number)
            time.sleep(0.1)
            assert entry.read_text() == "damaged"
        assert future.result() == 1


def _number(path):
    return int(path.read_text())


@pytest.mark.parametrize("about", ["[]", "3", "null", "{}", '{"extractor": "tfidf"}', "{"])
def test_an_entry_that_describes_itself_oddly_is_listed(tmp_path, about):
    folder = tmp_path / "cache" / "features" / "one"
    folder.mkdir(parents=True)
    (folder / ABOUT).write_text(about)
    assert [entry.about for entry in cache_entries(tmp_path)] == [""]


def test_an_entry_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path):
    def fail(path):
        path.write_text("half")
        raise OSError("No space left on device")

    with pytest.raises(UserError, match="cannot be written; found: No space left on device"):
        read_cached(tmp_path / "cache" / "kind" / "entry", fail, Path.read_text)
    assert cache_entries(tmp_path) == []
    assert list(tmp_path.glob("cache/kind/.*.partial")) == []
