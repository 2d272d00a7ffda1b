"""Tests of the Ray process that encodes test rows while trainings run."""

import time

import pytest
import ray
from builders import job_tree, text_dataset

from mlcl.config import load_job
from mlcl.service.engine import encoding
from mlcl.service.engine.encoding import SPLITS, Work, encode_ahead


@pytest.fixture(scope="module")
def session():
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def work(tmp_path, monkeypatch):
    from tiny_models import tiny_model

    monkeypatch.setattr(encoding, "SHORT", 0.0)
    bert = {"model": str(tiny_model(tmp_path / "bert", "bert")), "max_length": 6}
    tree = job_tree(text_dataset(tmp_path / "data"))
    job = load_job(tree | {"encoder": {"name": "features", "inputs": ["transformer"], "transformer": bert}})
    return Work([job], tmp_path / "home", "cpu")


def ahead(work, notes):
    return encode_ahead(work, test=True, show=lambda *_: None, note=notes.append, stop=lambda: False)


@pytest.mark.usefixtures("session")
def test_a_process_encodes_test_rows_while_all_cpus_train(work):
    notes, deadline = [], time.monotonic() + 60

    @ray.remote(num_cpus=1)
    def train():
        time.sleep(60)

    training = train.remote()
    with ahead(work, notes):
        assert [rows.split.name for rows in work.find_missing(SPLITS)] == ["test"]
        while work.find_missing(SPLITS) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert work.find_missing(SPLITS) == []
    ray.cancel(training, force=True)
    assert notes == ["24 test rows are encoded beside the trainings"]


@pytest.mark.usefixtures("session")
def test_the_process_ends_with_the_block(work):
    notes = []
    with ahead(work, notes):
        pass
    assert len(notes) == 1
    time.sleep(1)
    missing_splits = [rows.split.name for rows in work.find_missing(SPLITS)]
    assert missing_splits == ["test"]
    assert list((work.home / "cache" / "features").glob(".*.partial")) == []


@pytest.mark.usefixtures("session")
def test_an_error_of_the_process_is_a_note(work, monkeypatch, tmp_path):
    notes, deadline, begun_file = [], time.monotonic() + 60, tmp_path / "begun"

    def fail(*_):
        begun_file.touch()
        raise ArithmeticError("of a process")

    monkeypatch.setattr(encoding, "encode_beside", fail)
    with ahead(work, notes):
        while not begun_file.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(1)
    assert notes[-1] == "frozen inputs are left to the trainings: ArithmeticError: of a process"
    assert [rows.split.name for rows in work.find_missing(SPLITS)] == ["test"]
