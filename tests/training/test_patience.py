"""Tests of patience: the end of a training, the weights that are kept, and resumption after a stop."""

import itertools

import pytest
from builders import tiny_job
from stored_runs import run, same, weights

from mlcl.training.builders import build_loop, build_model
from mlcl.training.context import ONE_PROCESS
from mlcl.training.events import Stopped
from mlcl.training.job_data import JobData
from mlcl.training.loop_settings import Callbacks


def impatient(data, *overrides, **train):
    """Returns a job of up to 12 epochs with a patience of 2."""
    return tiny_job(data, "evaluation.metric=val/accuracy", *overrides, patience=2, epochs=12, **train)


def test_patience_ends_the_training_and_keeps_the_best_weights(tiny, tmp_path):
    events = []
    _, metrics = run(
        impatient(tiny, lr=0.02, schedule="constant", warmup=0.0), tmp_path, tmp_path / "run", events
    )
    scores = [event.metrics["val/accuracy"] for event in events if event.kind == "validation"]
    best = scores.index(max(scores))
    assert len(scores) == best + 3 < 12
    assert metrics["val/accuracy"] == max(scores)
    assert "training ends at epoch" in next(e.note for e in events if "no better" in e.note)
    # A training of just the best number of epochs gives the same weights.
    short_job = tiny_job(tiny, lr=0.02, schedule="constant", warmup=0.0, epochs=best + 1)
    run(short_job, tmp_path, tmp_path / "short", test=False)
    assert same(weights(tmp_path / "run"), weights(tmp_path / "short"))


@pytest.mark.parametrize(
    ("epochs", "every", "wanted"), [(20, 1, 10), (44, 1, 11), (250, 1, 63), (100, 5, 10), (5, 5, 10)]
)
def test_patience_by_the_number_of_validations(tiny, tmp_path, epochs, every, wanted):
    job = tiny_job(tiny, f"evaluation.every={every}", "train.patience=auto", epochs=epochs)
    assert patience_of(job, tmp_path).validations == wanted
    assert patience_of(tiny_job(tiny, patience=3), tmp_path).validations == 3
    assert patience_of(tiny_job(tiny, patience=None), tmp_path) is None


def patience_of(job, home):
    job_data, callbacks = JobData.of(job, home), Callbacks(lambda _: None, dict, lambda: False)
    return build_loop(job_data, build_model(job_data), ONE_PROCESS, callbacks).patience


def test_the_best_weights_are_written_once_where_they_are_the_last(tiny, tmp_path):
    sizes = {}
    for patience in (1, None):
        run(tiny_job(tiny, patience=patience, epochs=1), tmp_path, tmp_path / str(patience), test=False)
        sizes[patience] = (tmp_path / str(patience) / "checkpoint.pt").stat().st_size
    assert sizes[1] < 1.05 * sizes[None]


@pytest.mark.parametrize(
    ("stopped", "metric"), [(4, "val/accuracy"), (10, "knn/val/accuracy"), (13, "val/accuracy")]
)
def test_a_stopped_run_goes_on_with_its_patience(tiny, tmp_path, stopped, metric):
    job = impatient(tiny, f"evaluation.metric={metric}", lr=0.02, checkpoint_every=3)
    _, expected = run(job, tmp_path, tmp_path / "whole")
    steps = itertools.count(1)
    with pytest.raises(Stopped):
        run(job, tmp_path, tmp_path / "parts", should_stop=lambda: next(steps) == stopped)
    _, metrics = run(job, tmp_path, tmp_path / "parts")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    assert metrics == expected
