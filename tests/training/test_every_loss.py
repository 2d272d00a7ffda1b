"""Tests that every loss trains, also in micro-batches and half precision, and logs its figures."""

import math

import pytest
import torch
from builders import tiny_job, tree_dataset
from stored_runs import run

from mlcl.losses import LOSSES

SPACES = {"none": None, "class": "detail", "multi_label": "tags", "ratings": "ratings", "path": "path"}
WATCHED = {
    *("loss", "temperature", "positives_per_anchor", "without_positive"),
    *("own_view_weight", "effective_negatives", "alignment", "uniformity", "zero_rows"),
}


SEVERAL = (
    "objective.heads.topic.labels=tags",
    "objective.heads.topic.loss=mulsupcon",
    "objective.classifier={loss: bce, labels: tags}",
    "evaluation.metric=val/map",
    "train.sampler=hierarchical",
    "data.label_noise={rate: 0.1}",
)
"""The overrides of jobs on `tree_dataset`, whose rows have several paths."""


def job_of(name, tiny, *overrides):
    space = SPACES[LOSSES[name].labels]
    return tiny_job(
        tiny,
        f"objective.heads.detail.loss={name}",
        f"objective.heads.detail.labels={'null' if space is None else space}",
        *overrides,
        epochs=1,
    )


def train(name, tiny, home, *overrides):
    job = job_of(name, tiny, "objective.heads.topic.weight=0.0", *overrides)
    events = []
    run(job, home, None, events, test=False)
    (window,) = (event.metrics for event in events if "train/loss" in event.metrics)
    return {key.rpartition("/")[2]: value for key, value in window.items() if "/heads/detail/" in key}


@pytest.mark.parametrize("name", list(LOSSES))
def test_every_loss_trains(name, tiny, tmp_path):
    metrics = train(name, tiny, tmp_path)
    assert metrics.keys() == WATCHED
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["loss"] > 0
    assert metrics["positives_per_anchor"] > 0


@pytest.mark.parametrize("name", [name for name, spec in LOSSES.items() if spec.labels == "path"])
def test_losses_of_paths_train_with_several_a_row(name, tmp_path):
    """Tests losses of paths beside a classifier of the finest labels."""
    metrics = train(name, tree_dataset(tmp_path / "data"), tmp_path, *SEVERAL)
    assert metrics["loss"] > 0
    assert metrics["positives_per_anchor"] > 0


@pytest.mark.parametrize("name", ["sincere", "knn", "himulcone", "lascl", "jscl", "msc", "reg"])
def test_half_precision_and_micro_batches(name, tiny, tmp_path):
    metrics = train(name, tiny, tmp_path, "train.precision=bf16", "train.micro_batch_size=5")
    assert math.isfinite(metrics["loss"])
    assert metrics["loss"] > 0


def test_msc_learns_its_prototypes(tiny, tmp_path):
    """Tests that there is a prototype for each of the five tags, and that training changes them."""
    train("msc", tiny, tmp_path)
    checkpoint = next((tmp_path / "run").rglob("*.pt"))
    state = torch.load(checkpoint, weights_only=True)["model"]
    assert state["objective.heads.detail_head.loss.prototypes"].shape == (5, 8)
    lengths = state["objective.heads.detail_head.loss.prototypes"].norm(dim=1)
    assert (lengths != 1).any()
