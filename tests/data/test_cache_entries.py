"""The cache is listed and removed, but for what is being written."""

import json

import torch
from filelock import FileLock
from typer.testing import CliRunner

from mlcl.cli.data import app
from mlcl.data import Dataset, decode_all
from mlcl.data.cache_entries import cache_entries, remove_entry
from mlcl.models.feature_inputs import TfidfInput
from mlcl.service.doctor.files import find_partial_files
from mlcl.service.doctor.finding import Scope
from mlcl.testing.datasets import small_dataset
from mlcl.training.feature_cache import FeatureCache


def fill(home):
    texts = Dataset.open(small_dataset(home / "texts", "text")).split("train")
    images = Dataset.open(small_dataset(home / "images", "image")).split("train")
    FeatureCache(home / "cache", texts).rows("tfidf", TfidfInput(), texts)
    decode_all(images.take(torch.arange(4)), 8, home / "cache")


def test_what_is_there_and_how_large(tmp_path):
    fill(tmp_path)
    entries = cache_entries(tmp_path)
    assert sorted(entry.kind for entry in entries) == ["features", "features", "images"]
    assert {entry.about for entry in entries} == {"tfidf of small texts", ""}
    assert all(entry.bytes > 0 for entry in entries)
    (images,) = (entry for entry in entries if entry.kind == "images")
    assert images.bytes == images.path.stat().st_size


def test_what_another_process_writes_is_kept(tmp_path):
    fill(tmp_path)
    entry, other, _ = sorted(cache_entries(tmp_path), key=lambda entry: entry.kind)
    with FileLock(entry.path.with_name(f".{entry.path.name}.lock")):
        assert not remove_entry(entry)
    assert entry.path.exists()
    assert remove_entry(other)
    assert not other.path.exists()


def test_the_command_removes_all_and_says_so(tmp_path):
    fill(tmp_path)
    runner = CliRunner()
    only_said = runner.invoke(app, ["clean", "--dry-run", "--json", "--home", str(tmp_path)])
    said = json.loads(only_said.output)
    assert said["bytes"] == sum(entry.bytes for entry in cache_entries(tmp_path)) > 0
    assert [entry["removed"] for entry in said["entries"]] == [False] * 3
    done = runner.invoke(app, ["clean", "--home", str(tmp_path)])
    assert "tfidf of small texts" in done.output
    assert "removed 3 entries" in done.output
    assert cache_entries(tmp_path) == []
    assert "removed 0 entries" in runner.invoke(app, ["clean", "--home", str(tmp_path)]).output


def test_the_doctor_finds_what_a_killed_extraction_left(tmp_path):
    fill(tmp_path)
    entry = next(entry for entry in cache_entries(tmp_path) if entry.kind == "features")
    left = entry.path.with_name(f".{entry.path.name}.partial-abc")
    left.mkdir()
    with FileLock(entry.path.with_name(f".{entry.path.name}.lock")):
        assert list(find_partial_files(Scope(tmp_path, "none"))) == []
    (finding,) = find_partial_files(Scope(tmp_path, "none"))
    assert finding.mend is not None
    finding.mend()
    assert not left.exists()
    assert entry.path.exists()
