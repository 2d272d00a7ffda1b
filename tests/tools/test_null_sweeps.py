"""Tests of the jobs, the labels and the resumption of benchmarks/null_sweeps.py."""

import importlib
import json

import numpy as np
import pytest

from mlcl.config import load_job, load_space


@pytest.fixture
def bench(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "benchmarks")
    return importlib.import_module("null_sweeps")


def test_there_are_enough_sweeps_of_each_kind(bench):
    kinds = [kind for _, kind, _ in bench.cases()]
    assert len(set(bench.cases())) == len(kinds)
    assert (kinds.count("shuffled"), kinds.count("twice"), kinds.count("helps")) == (30, 30, 20)
    assert set(kinds[:8]) == {"shuffled", "twice", "helps"}


@pytest.mark.parametrize("name", ["digits", "scenes", "diagnoses"])
@pytest.mark.parametrize("kind", ["shuffled", "twice"])
def test_jobs_are_valid(bench, tmp_path, name, kind):
    job, space = bench.files(name, kind, 1, tmp_path)
    loaded_job = load_job(job)
    assert load_space(space, loaded_job).parameters
    assert loaded_job.objective.heads["extra"].labels == "head"
    assert loaded_job.objective.classifier.labels == "label"


def test_a_shuffled_head_s_labels_are_a_permutation_and_tell_nothing(bench):
    frame = bench.table("digits", "shuffled", np.random.default_rng(0))
    assert sorted(frame["head"]) == sorted(frame["label"])
    assert (frame["head"] == frame["label"]).mean() == pytest.approx(0.1, abs=0.05)
    assert frame["split"].value_counts().to_dict() == bench.ROWS


def test_a_helping_head_has_the_right_labels_of_training_rows(bench):
    frame = bench.table("diagnoses", "helps", np.random.default_rng(0))
    right = (frame["head"] == frame["label"]).groupby(frame["split"]).mean()
    areas = frame["head"].value_counts(normalize=True)
    assert right["val"] == right["test"] == 1
    assert right["train"] == pytest.approx(1 - 0.6 * (1 - (areas**2).sum()), abs=0.1)


def test_it_goes_on_where_it_stopped_and_counts_decisions(bench, tmp_path, monkeypatch, capsys):
    path = tmp_path / "found.jsonl"
    cases = []

    def verdict(name, kind, number):
        cases.append((name, kind, number))
        answer = "helps" if kind == "helps" or len(cases) == 1 else "cannot tell"
        return {
            "set": name,
            "kind": kind,
            "number": number,
            "seconds": 1.0,
            "answer": answer,
            "sentence": ".",
        }

    monkeypatch.setattr(bench, "verdict_of", verdict)
    monkeypatch.setattr(bench, "cases", lambda count=2: bench_cases[:count])
    bench_cases = [("digits", "shuffled", 0), ("digits", "twice", 0), ("digits", "helps", 0)]
    monkeypatch.setattr("sys.argv", ["null_sweeps.py", "--out", str(path)])
    bench.main()
    monkeypatch.setattr(bench, "cases", lambda: bench_cases)
    bench.main()
    assert cases == bench_cases
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == [
        "shuffled",
        "twice",
        "helps",
    ]
    assert capsys.readouterr().out.splitlines()[-1] == "decided without an effect: 1 of 2"
