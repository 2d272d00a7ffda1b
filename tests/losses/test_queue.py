"""Tests that a queue's rows are candidates without gradient, and the same for any number of processes."""

import io
import pickle
from dataclasses import replace

import pytest
import torch
from losses.oracles import CASES, ORACLES
from losses.queue_ranks import SIZE, steps, work

from mlcl.losses import LOSSES, build_loss, sharing_key
from mlcl.testing.loss_batches import take
from mlcl.testing.losses import assert_equal
from mlcl.testing.ranks import run_ranks

WITH_QUEUE = [case for case in CASES if LOSSES[case[0]].queue]


def fed(loss, rows, parts):
    """Returns the values of a loss over parts of a batch, each of which is pushed after its step."""
    values = []
    for index in parts:
        z, labels = rows.z[index], take(rows.labels(loss.spec.name), index)
        values.append(loss(z, labels, rows.sample_ids()[index]))
        loss.queue.push()
    return values


@pytest.mark.parametrize("name", ["simclr", "simdis", "knn", "msc", "jscl", "sincere"])
def test_the_value_is_that_of_a_slow_loop_over_all_rows(name, rows):
    """The batch has 14 rows, views of 7 samples; 8 rows are in the queue when the other 6 come."""
    past_rows, last_rows = (
        torch.tensor([r for r, s in enumerate(rows.samples) if (s < 4) == old]) for old in (True, False)
    )
    loss = build_loss(name, temperature=0.3, queue=64)
    first, value = fed(loss, rows, [past_rows, last_rows])
    terms = ORACLES[name](rows.z.tolist(), rows.plain_labels(name), 0.3)
    assert value.item() == pytest.approx(sum(terms[r] for r in last_rows) / len(last_rows), rel=1e-12)
    plain_loss = build_loss(name, temperature=0.3)
    assert first == plain_loss(
        rows.z[past_rows], take(rows.labels(name), past_rows), rows.sample_ids()[past_rows]
    )


def test_two_processes_hold_the_rows_of_one():
    ranks = run_ranks(work, (WITH_QUEUE,), 2)
    expected_answers = steps(WITH_QUEUE)
    for case, expected, *rank_answers in zip(WITH_QUEUE, expected_answers, *ranks, strict=True):
        for rank in rank_answers:
            assert torch.equal(rank["samples"], expected["samples"]), case
            torch.testing.assert_close(rank["rows"], expected["rows"], rtol=0, atol=0)
        values = torch.stack([torch.stack(rank["values"]) for rank in rank_answers]).mean(0)
        torch.testing.assert_close(values, torch.stack(expected["values"]), rtol=1e-12, atol=1e-12)
        gradient = sum(rank["gradient"] for rank in rank_answers) / 2
        torch.testing.assert_close(gradient, expected["gradient"], rtol=1e-11, atol=1e-12)
    assert len(expected_answers[0]["samples"]) == SIZE


def test_a_sample_of_the_batch_and_the_oldest_rows_leave(rows):
    loss = build_loss("simdis", queue=6)
    index = [
        torch.tensor([r for r, s in enumerate(rows.samples) if s in part])
        for part in ((2, 3), (4, 5), (2, 6))
    ]
    fed(loss, rows, index[:2])
    assert loss.queue.state()["sample_ids"].tolist() == [2, 2, 5, 5, 4, 4]  # ordered by a hash
    z, ids = rows.z[index[2]], rows.sample_ids()[index[2]]
    value = loss(z, take(rows.labels("simdis"), index[2]), ids)
    other = build_loss("simdis", queue=6)
    other_value = fed(other, rows, [index[1], index[2]])[1]
    assert value == other_value
    assert loss.stats.embeddings.shape[0] == len(z) + 4
    loss.queue.push()
    loss.queue.push()  # the same batch is added once
    assert loss.queue.state()["sample_ids"].tolist() == [4, 4, 6, 6, 2, 2]


@pytest.mark.parametrize("name", ["mulsupcon", "simclr", "supcon"])
def test_a_stored_queue_goes_on_to_the_same_bits(name, rows):
    parts = torch.arange(14).split(4)
    whole, before, after = (build_loss(name, queue=9) for _ in range(3))
    expected = fed(whole, rows, parts)
    fed(before, rows, parts[:2])
    file = io.BytesIO()
    torch.save(before.queue.state(), file)
    file.seek(0)
    after.queue.load(torch.load(file, weights_only=True))
    assert fed(after, rows, parts[2:]) == expected[2:]
    assert len(pickle.loads(pickle.dumps(whole)).queue) == 0


def test_the_gradient_is_that_of_the_value_and_stops_at_the_queue(rows):
    loss = build_loss("simdis", temperature=0.5, engine="dense", queue=20)
    index = torch.arange(7)
    past_z = rows.z[:4].clone().requires_grad_()
    loss(past_z, take(rows.labels("simdis"), index[:4]), index[:4]).backward()
    past_z.grad = None
    loss.queue.push()
    z = rows.z[4:7].clone().requires_grad_()
    arguments = take(rows.labels("simdis"), index[4:]), index[4:]
    assert torch.autograd.gradcheck(lambda z: loss(z, *arguments), (z,))
    assert past_z.grad is None


def test_rows_in_bfloat16_are_kept_as_the_loss_compares_them(rows):
    """Rows in bfloat16 are rounded once, where they are made, and normalised in float32."""
    half, single = (build_loss("simdis", queue=8, normalize=True, engine=e) for e in ("tiled", "dense"))
    z, parts = rows.z.bfloat16(), torch.arange(14).split(7)
    values = fed(half, replace(rows, z=z), parts), fed(single, replace(rows, z=z.float()), parts)
    assert torch.stack(values[0]).tolist() == pytest.approx(torch.stack(values[1]).tolist(), rel=0.02)
    assert torch.equal(half.queue.state()["embeddings"], single.queue.state()["embeddings"])
    assert half.queue.state()["embeddings"].dtype == torch.float32


@pytest.mark.parametrize("name", ["msc", "reg"])
def test_prototypes_beside_a_queue(name, rows):
    results = []
    for engine in ("tiled", "dense"):
        torch.manual_seed(0)
        loss = build_loss(name, engine=engine, queue=8, prototypes=(rows.width, 5)).double()
        fed(loss, rows, torch.arange(14).split(7))[1].backward()
        results.append([loss.prototypes.grad, fed(loss, rows, [torch.arange(14)])[0].detach()])
    assert_equal(*results, 1e-11)


def test_what_takes_no_queue_says_so(rows):
    with pytest.raises(ValueError, match="himulcone takes no queue; found: 8; allowed: None"):
        build_loss("himulcone", queue=8)
    for size in (0, 1.5, True, "5"):
        with pytest.raises(ValueError, match=f"queue; found: {size!r}; allowed: 1 or more rows"):
            build_loss("any", queue=size)
    loss = build_loss("any", queue=8)
    with pytest.raises(ValueError, match="a loss with a queue needs sample_ids"):
        loss(rows.z, rows.labels("any"))
    assert sharing_key(loss) is None


def test_what_is_cut_off_a_batch_does_not_depend_on_the_order_of_the_data():
    loss, class_counts = build_loss("supcon", queue=32), torch.zeros(10)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        ids = torch.randperm(1000, generator=generator)[:64]  # the data are sorted by class
        loss(torch.randn(64, 4, generator=generator), ids // 100, ids)
        loss.queue.push()
        class_counts += torch.bincount(loss.queue.state()["sample_ids"] // 100, minlength=10)
    assert (class_counts / class_counts.sum()).min() > 0.05
