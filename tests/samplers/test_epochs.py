import pytest
import torch

from mlcl.samplers import EpochSampler


@pytest.mark.parametrize("world", [2, 3, 5])
def test_slices_differ_by_one_row_at_most(world):
    ranks = [EpochSampler(50, 16, seed=0, rank=rank, world_size=world) for rank in range(world)]
    for parts in zip(*(r.batches(0) for r in ranks), strict=False):
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) > 0


def test_the_permutation_of_a_seed_and_epoch_stays():
    batches = [batch.tolist() for batch in EpochSampler(10, 4, seed=3).batches(2)]
    assert batches == [[2, 3, 6, 5], [8, 4, 7, 9], [1, 0]]
    order = torch.cat(list(EpochSampler(100, 16, seed=1).batches(2)))
    assert sorted(order.tolist()) == list(range(100))


def test_epochs_and_seeds_differ_and_repeat():
    def epoch(seed, number):
        return torch.cat(list(EpochSampler(64, 8, seed=seed).batches(number))).tolist()

    assert epoch(0, 1) == epoch(0, 1)
    orders = [epoch(seed, number) for seed in range(3) for number in range(3)]
    assert len({tuple(order) for order in orders}) == 9


@pytest.mark.parametrize(
    ("rows", "world", "drop_last", "steps"),
    [
        (32, 1, False, 4),
        (33, 1, False, 4),
        (34, 1, False, 5),
        (34, 2, False, 5),
        (34, 3, False, 4),
        (39, 1, True, 4),
    ],
)
def test_a_last_batch_too_small_to_share_is_dropped(rows, world, drop_last, steps):
    ranks = [EpochSampler(rows, 8, 0, rank, world, drop_last=drop_last) for rank in range(world)]
    assert ranks[0].steps_per_epoch == steps == len(list(ranks[0].batches(0)))
    joint_batches = [torch.cat(parts) for parts in zip(*(r.batches(0) for r in ranks), strict=True)]
    single_batches = list(EpochSampler(rows, 8, seed=0).batches(0))
    assert all(torch.equal(a, b) for a, b in zip(joint_batches, single_batches[:steps], strict=True))


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": 10, "batch_size": 1},
        {"rows": 10, "batch_size": 2, "world_size": 3},
        {"rows": 10, "batch_size": 3, "world_size": 2, "least": 2},
        {"rows": 10, "batch_size": 4, "rank": 1},
        {"rows": 1, "batch_size": 4},
        {"rows": 3, "batch_size": 4, "drop_last": True},
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=r"."):
        EpochSampler(seed=0, **wrong)
