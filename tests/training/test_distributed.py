"""Tests that several processes train like one: with equal weights, and with a stop of all on request."""

import pytest
import torch
from builders import shades, tiny_job
from stored_runs import same, weights
from training.training_ranks import (
    equal_rank,
    float64_run,
    memory_rank,
    resume_rank,
    rounds_rank,
    trained_rank,
)

from mlcl.testing.ranks import run_ranks

OVERRIDES = (
    "encoder.dropout=0",
    "train.epochs=2",
    "train.batch_size=10",  # of 48 rows the last batch is smaller, and ranks hold unequal shares
    "objective.heads.topic.temperature={learned: 0.3}",
    "objective.heads.detail={loss: simdis, labels: tags, weight: 0.2, reduction: mean_valid}",
)


LABELS = (
    "objective.classifier={loss: bce, labels: tags, pos_weight: sqrt, reduction: sum_labels}",
    "evaluation.metric=val/micro_f1",
)
QUEUES = (
    *LABELS,
    "objective.heads.topic.queue=25",
    "objective.heads.detail.queue=33",
    "objective.heads.detail.projection.kind=logits",
)
FEATURES = (
    *LABELS,
    "encoder={name: features, inputs: [tfidf], out: 6, dropout: 0, deep_columns: 9}",
    # No projections: embeddings begin near 0, where Adam amplifies the rounding of a projection's gradient.
    "objective.heads.topic.projection={kind: identity}",
    "objective.heads.detail.projection={kind: identity}",
)


@pytest.mark.parametrize(
    ("world", "micro", "sampler", "classifier"),
    [(2, None, "pk", ()), (3, None, "uniform", LABELS), (2, 2, "balanced", ("data.validation_seed=3",)),
     (3, 3, "hierarchical", ()), (2, 3, "uniform", FEATURES),
     (3, 2, "balanced", QUEUES)],
)  # fmt: skip
def test_ranks_train_as_one_process(tiny, tmp_path, world, micro, sampler, classifier):
    overrides = (*OVERRIDES, *classifier, f"train.sampler={sampler}")
    reference = float64_run(tiny_job(tiny, *overrides), tmp_path / "home")
    overrides = overrides if micro is None else (*overrides, f"train.micro_batch_size={micro}")
    ranks = run_ranks(equal_rank, (tmp_path, tiny, overrides), world)
    check_weights(reference, ranks, 1e-11)
    curves = [[metrics["train/loss"] for metrics in output["windows"]] for output in (ranks[0], reference)]
    assert curves[0] == pytest.approx(curves[1], abs=1e-11)
    # Each step gathers the embeddings of all heads in one collective, labels in one and sizes in another.
    assert len(ranks[0]["labels"]) == 2 * reference["steps"]
    assert len(ranks[0]["embeddings"]) == reference["steps"]
    assert len(set(ranks[0]["embeddings"])) == 1


def check_weights(one, ranks, tolerance):
    for name, expected in one["weights"].items():
        for rank in ranks:
            assert torch.allclose(rank["weights"][name], expected, rtol=0, atol=tolerance), name


def test_ranks_evaluate_with_the_batch_norm_statistics_of_rank_0(tmp_path):
    """Tests that ranks evaluate with rank 0's statistics, which are stored, though their batches differ."""
    overrides = (
        "encoder={name: cnn_image, width: 4, blocks: 1, image_size: 8}",
        "objective={heads: {}, classifier: {loss: cross_entropy, labels: kind}}",
        "train.epochs=1",
        "train.batch_size=8",
    )
    rank_0, rank_1 = run_ranks(trained_rank, (tmp_path, shades(tmp_path / "data"), overrides), 2)
    assert rank_0["encoder.blocks.0.1.running_mean"].any()
    assert same(rank_0, rank_1)


@pytest.mark.gpu
def test_two_ranks_on_one_gpu_train_as_one_process_there(tiny, tmp_path):
    reference = float64_run(tiny_job(tiny, *OVERRIDES), tmp_path / "home", "cuda")
    ranks = run_ranks(equal_rank, (tmp_path, tiny, OVERRIDES, "cuda"), 2)
    assert len(ranks) == 2
    check_weights(reference, ranks, 1e-9)


@pytest.mark.parametrize("micro", [None, 3])
def test_ranks_log_the_gradient_norms_of_the_whole_batch(tiny, tmp_path, micro):
    overrides = (*OVERRIDES, *LABELS, "train.log_gradients=true")
    single_windows = float64_run(tiny_job(tiny, *overrides), tmp_path / "home")["windows"]
    overrides = overrides if micro is None else (*overrides, f"train.micro_batch_size={micro}")
    rank_windows = run_ranks(equal_rank, (tmp_path, tiny, overrides), 2)[0]["windows"]
    # Each window has the norms of three parts of the objective, and the loss.
    assert [len(metrics) for metrics in single_windows] == [4, 4]
    for expected, actual in zip(single_windows, rank_windows, strict=True):
        assert expected == pytest.approx(actual, rel=1e-9)


def test_a_stop_asked_of_one_rank_stops_all_and_resumes_to_the_same_bits(tiny, tmp_path):
    """Tests also that ranks resume from the previous checkpoint if only rank 0 finds the last one damaged."""
    whole, *others = run_ranks(resume_rank, (tmp_path, tiny), 2)[0]
    time_names = {name for name in whole if name.startswith("time/")}
    for name, metrics in zip(("parts", "damaged"), others, strict=True):
        assert {k: v for k, v in metrics.items() if k not in time_names} == {
            k: v for k, v in whole.items() if k not in time_names
        }
        assert same(weights(tmp_path / "whole"), weights(tmp_path / name))


def test_gradients_are_averaged_once_a_step_however_many_micro_batches_a_rank_has(tiny, tmp_path):
    rank_0, rank_1 = run_ranks(rounds_rank, (tmp_path, tiny), 2)
    assert rank_0["rounds"] == rank_1["rounds"] == [1, 1]
    for name, gradient in rank_0["gradients"].items():
        assert gradient.abs().sum() > 0, name
        assert torch.equal(gradient, rank_1["gradients"][name]), name


def test_memory_that_one_rank_lacks_halves_the_micro_batch_of_all(tiny, tmp_path):
    ranks = run_ranks(memory_rank, (tmp_path, tiny), 2)
    expected = ranks[0][0]
    for result in (result for results in ranks for result in results):
        assert result["size"] == 2
        assert same(result["weights"], expected["weights"])
    assert ranks[0][1]["curve"] == ranks[0][2]["curve"] == expected["curve"]
