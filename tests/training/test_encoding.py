"""Tests of rows of frozen networks that are encoded before trainings read them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from builders import job_tree, text_dataset

from mlcl.config import load_job
from mlcl.data.cache_entries import cache_entries
from mlcl.training import encoding
from mlcl.training.encoding import encode, missing_rows, network_inputs, row_count, seconds_to_encode
from mlcl.training.events import Stopped
from mlcl.training.features import transformer
from mlcl.training.features.cache import FeatureCache
from mlcl.training.features.extractor import BatchRun, outputs
from mlcl.training.job_data import JobData

SPLITS = ("train", "validation", "test")
CPU = torch.device("cpu")


@pytest.fixture
def bert(models):
    return {"model": str(models["bert"]), "max_length": 6}


@pytest.fixture
def job(tmp_path, bert, monkeypatch):
    """Returns a function that makes jobs on TF-IDF and a frozen network with batches of four rows."""
    monkeypatch.setattr(transformer, "ROWS_AT_ONCE", 4)
    data = text_dataset(tmp_path / "data")

    def make(*overrides, **sections):
        tree = job_tree(data) | {
            "encoder": {"name": "features", "inputs": ["tfidf", "transformer"], "transformer": bert}
        }
        return load_job(tree | sections, overrides)

    return make


def found(job, home, splits=SPLITS):
    return missing_rows(JobData.of(job, home), "cpu", splits)


def entries(home):
    """Returns the cache's entries of networks' rows, and its unfinished files."""
    folder = home / "cache" / "features"
    paths = {entry.path for entry in cache_entries(home) if "transformer" in entry.about}
    return paths, list(folder.glob(".*.partial"))


def quiet(_done, _total):
    return


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_do_not_depend_on_the_number_of_threads(threads):
    network = torch.nn.Linear(5, 3)
    inputs = [torch.randn(rows, 5) for rows in (4, 2, 4, 1)]
    order = np.random.default_rng(0).permutation(11)
    row_parts = np.split(order, np.cumsum([len(values) for values in inputs])[:-1])
    batches = [(rows, {"input": values}) for rows, values in zip(row_parts, inputs, strict=True)]
    n_threads, row_counts = torch.get_num_threads(), []
    actual = outputs(network, iter(batches), (11, 3), CPU, "float32", BatchRun(threads, row_counts.append))
    for rows, values in zip(row_parts, inputs, strict=True):
        np.testing.assert_array_equal(actual[rows], network(values).detach().numpy())
    assert row_counts == [4, 2, 4, 1]
    assert torch.get_num_threads() == n_threads


def test_an_error_after_a_batch_ends_the_others():
    numbers, n_threads = [], torch.get_num_threads()

    class Network(torch.nn.Module):
        def forward(self, number):
            numbers.append(int(number))
            return number[:, None].float()

    def refuse(_rows):
        raise Stopped

    batches = ((np.array([n]), {"number": torch.tensor([n])}) for n in range(100))
    with pytest.raises(Stopped):
        outputs(Network(), batches, (100, 1), CPU, "float32", BatchRun(2, refuse))
    assert len(numbers) <= 3
    assert torch.get_num_threads() == n_threads


def test_what_is_encoded_is_found_by_trainings_and_has_their_numbers(job, tmp_path):
    config, progress = job(), []
    missing = found(config, tmp_path / "home")
    rows = [len(entry.split) for entry in missing.values()]
    assert [entry.name for entry in missing.values()] == ["transformer"] * 3
    encode(list(missing.values()), 2, lambda *counts: progress.append(counts))
    assert progress[0] == (0, sum(rows))
    assert progress[-1] == (sum(rows), sum(rows))
    assert [n_done for n_done, _ in progress] == sorted(n_done for n_done, _ in progress)
    assert found(config, tmp_path / "home") == {}
    encoded_ahead, encoded_later = (JobData.of(config, tmp_path / home) for home in ("home", "other"))
    for name in SPLITS:
        stored_rows, computed_rows = (
            job_data.features.rows(job_data.dataset.split(name)).inputs["transformer"]
            for job_data in (encoded_ahead, encoded_later)
        )
        assert isinstance(stored_rows, np.memmap)
        np.testing.assert_array_equal(stored_rows, computed_rows)
    assert {path.name for path in entries(tmp_path / "home")[0]} == {
        path.name for path in entries(tmp_path / "other")[0]
    }


def test_a_stop_keeps_whole_splits_and_nothing_of_the_others(job, tmp_path):
    config, home = job(), tmp_path / "home"
    missing = found(config, home)
    train, *others = missing

    def stop(done, _total):
        if done > len(missing[train].split) + 4:
            raise Stopped

    with pytest.raises(Stopped):
        encode(list(missing.values()), 2, stop)
    assert entries(home) == ({train}, [])
    assert list(found(config, home)) == others
    encode(list(found(config, home).values()), 1, quiet)
    assert entries(home) == (set(missing), [])


def test_redrawn_rows_are_encoded_as_the_stored_ones(job, tmp_path):
    home = tmp_path / "home"
    full = found(job(), home)
    assert list(found(job("data.validation_seed=2"), home)) == list(full)
    subset = found(job("data.subset={n: 8, seed: 0}"), home)
    assert len(next(iter(subset.values())).split) == 8
    assert list(subset)[1:] == list(full)[1:]


def test_baselines_read_what_the_network_reads(job, tmp_path):
    config = job()
    assert [name for name, _ in network_inputs(config)] == ["transformer"]
    assert network_inputs(job("baseline=encoder_logreg")) == network_inputs(config)
    assert network_inputs(job("baseline=tfidf_svm")) == []
    assert network_inputs(job(encoder={"name": "cnn_text"})) == []
    assert len(network_inputs(job("evaluation.ensemble=text_encoder_svm"))) == 2
    inputs = found(job("evaluation.ensemble=text_encoder_svm"), tmp_path / "home")
    assert len(inputs) == 3


def test_the_seconds_are_estimated_from_a_batch(job, tmp_path, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(encoding.time, "perf_counter", lambda: float(next(clock)))
    missing = found(job(), tmp_path / "home").values()
    batches = []
    contents = FeatureCache.contents
    monkeypatch.setattr(
        FeatureCache,
        "contents",
        lambda *arguments: batches.append(contents(*arguments)) or contents(*arguments),
    )
    expected = sum(len(entry.split) / min(32, len(entry.split)) for entry in missing) / 2
    assert seconds_to_encode(missing, 2) == pytest.approx(expected)
    assert [len(texts) for texts in batches] == [
        n for entry in missing for n in (1, min(32, len(entry.split)))
    ]
    assert row_count(missing) == sum(len(entry.split) for entry in missing)
    assert entries(Path(tmp_path / "home"))[0] == set()
