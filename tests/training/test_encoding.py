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
    whole = {entry.path for entry in cache_entries(home) if "transformer" in entry.about}
    return whole, list(folder.glob(".*.partial"))


def quiet(_done, _total):
    return


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_do_not_depend_on_the_number_of_threads(threads):
    network = torch.nn.Linear(5, 3)
    inputs = [torch.randn(rows, 5) for rows in (4, 2, 4, 1)]
    order = np.random.default_rng(0).permutation(11)
    parts = np.split(order, np.cumsum([len(each) for each in inputs])[:-1])
    batches = [(rows, {"input": each}) for rows, each in zip(parts, inputs, strict=True)]
    usual, told = torch.get_num_threads(), []
    got = outputs(network, iter(batches), (11, 3), CPU, "float32", BatchRun(threads, told.append))
    for rows, each in zip(parts, inputs, strict=True):
        np.testing.assert_array_equal(got[rows], network(each).detach().numpy())
    assert told == [4, 2, 4, 1]
    assert torch.get_num_threads() == usual


def test_an_error_after_a_batch_ends_the_others():
    computed, usual = [], torch.get_num_threads()

    class Network(torch.nn.Module):
        def forward(self, number):
            computed.append(int(number))
            return number[:, None].float()

    def refuse(_rows):
        raise Stopped

    batches = ((np.array([n]), {"number": torch.tensor([n])}) for n in range(100))
    with pytest.raises(Stopped):
        outputs(Network(), batches, (100, 1), CPU, "float32", BatchRun(2, refuse))
    assert len(computed) <= 3
    assert torch.get_num_threads() == usual


def test_what_is_encoded_is_found_by_trainings_and_has_their_numbers(job, tmp_path):
    its, told = job(), []
    missing = found(its, tmp_path / "home")
    rows = [len(each.split) for each in missing.values()]
    assert [each.name for each in missing.values()] == ["transformer"] * 3
    encode(list(missing.values()), 2, lambda *done: told.append(done))
    assert told[0] == (0, sum(rows))
    assert told[-1] == (sum(rows), sum(rows))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert found(its, tmp_path / "home") == {}
    ahead, later = (JobData.of(its, tmp_path / home) for home in ("home", "other"))
    for name in SPLITS:
        read, computed = (
            each.features.rows(each.dataset.split(name)).inputs["transformer"] for each in (ahead, later)
        )
        assert isinstance(read, np.memmap)
        np.testing.assert_array_equal(read, computed)
    assert {path.name for path in entries(tmp_path / "home")[0]} == {
        path.name for path in entries(tmp_path / "other")[0]
    }


def test_a_stop_keeps_whole_splits_and_nothing_of_the_others(job, tmp_path):
    its, home = job(), tmp_path / "home"
    missing = found(its, home)
    train, *others = missing

    def stop(done, _total):
        if done > len(missing[train].split) + 4:
            raise Stopped

    with pytest.raises(Stopped):
        encode(list(missing.values()), 2, stop)
    assert entries(home) == ({train}, [])
    assert list(found(its, home)) == others
    encode(list(found(its, home).values()), 1, quiet)
    assert entries(home) == (set(missing), [])


def test_redrawn_rows_are_encoded_as_the_stored_ones(job, tmp_path):
    home = tmp_path / "home"
    stored = found(job(), home)
    assert list(found(job("data.validation_seed=2"), home)) == list(stored)
    subset = found(job("data.subset={n: 8, seed: 0}"), home)
    assert len(next(iter(subset.values())).split) == 8
    assert list(subset)[1:] == list(stored)[1:]


def test_baselines_read_what_the_network_reads(job, tmp_path):
    its = job()
    assert [name for name, _ in network_inputs(its)] == ["transformer"]
    assert network_inputs(job("baseline=encoder_logreg")) == network_inputs(its)
    assert network_inputs(job("baseline=tfidf_svm")) == []
    assert network_inputs(job(encoder={"name": "cnn_text"})) == []
    assert len(network_inputs(job("evaluation.ensemble=text_encoder_svm"))) == 2
    both = found(job("evaluation.ensemble=text_encoder_svm"), tmp_path / "home")
    assert len(both) == 3


def test_the_seconds_are_estimated_from_a_batch(job, tmp_path, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(encoding.time, "perf_counter", lambda: float(next(clock)))
    missing = found(job(), tmp_path / "home").values()
    read = []
    contents = FeatureCache.contents
    monkeypatch.setattr(
        FeatureCache, "contents", lambda *given: read.append(contents(*given)) or contents(*given)
    )
    expected = sum(len(each.split) / min(32, len(each.split)) for each in missing) / 2
    assert seconds_to_encode(missing, 2) == pytest.approx(expected)
    assert [len(texts) for texts in read] == [n for each in missing for n in (1, min(32, len(each.split)))]
    assert row_count(missing) == sum(len(each.split) for each in missing)
    assert entries(Path(tmp_path / "home"))[0] == set()
