"""A datastore over Ray workers: what one index finds, to the last bit, also where a worker dies."""

import logging
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
import torch
from patience import until

from mlcl.errors import UserError
from mlcl.evaluation import Neighbours, retrieve
from mlcl.service import sharded
from mlcl.service.shard import shares
from mlcl.service.sharded import ShardedIndex
from mlcl.service.stored_rows import StoredRows


def points(rows, dim=6, seed=0):
    """One half on a grid, where many distances are equal."""
    x = torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))
    x[::2] = x[::2].round().clamp(-1, 1)
    return x


def write(file, rows, group=7, **columns):
    values = pa.FixedSizeListArray.from_arrays(pa.array(rows.numpy().ravel()), rows.shape[1])
    pq.write_table(pa.table({"embedding": values} | columns), file, row_group_size=group)
    return file


def same(one, other):
    return torch.equal(one.distance, other.distance) and torch.equal(one.index, other.index)


def process_of(worker):
    return ray.get(worker.__ray_call__.remote(lambda _: os.getpid()))


@pytest.fixture(scope="module")
def four_cpus():
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def datastore():
    return points(601)


@pytest.fixture(scope="module")
def index(four_cpus, datastore, tmp_path_factory):
    """Of a run's split in a file, of rows at hand, of none, and of a whole file."""
    folder = tmp_path_factory.mktemp("parts")
    rest = points(9, seed=2)
    splits = pa.array(["train"] * 290 + ["validation"] * 9)
    run = write(folder / "embeddings.parquet", torch.cat([datastore[:290], rest]), split=splits)
    parts = [
        StoredRows.of(run, "train"),
        datastore[290:290],
        datastore[290:333],
        StoredRows.of(write(folder / "b.parquet", datastore[333:], group=50)),
    ]
    with ShardedIndex(parts, 2, batch=16) as index:
        yield index


@pytest.mark.parametrize("k", [1, 9, 400])
def test_two_workers_equal_one_index(index, datastore, k):
    queries = points(50, seed=1)
    assert index.rows == len(datastore)
    assert same(index.search(queries, k), retrieve(datastore, queries, k))


def test_batches_are_taken_as_they_are_needed(index, datastore):
    queries, taken = points(40, seed=1), []

    def batches():
        for batch in queries.split(4):
            taken.append(batch)
            yield batch

    found = index.stream(batches(), 3)
    assert same(next(found), retrieve(datastore, queries[:4], 3))
    assert len(taken) == sharded.AHEAD
    assert same(next(found), retrieve(datastore, queries[4:8], 3))
    assert len(taken) == sharded.AHEAD + 1


def test_fewer_rows_than_k_and_no_queries(index, datastore, caplog):
    queries = points(3, seed=1)
    with caplog.at_level(logging.WARNING):
        assert same(index.search(queries, 700), retrieve(datastore, queries, 601))
    assert "only 601 neighbours instead of 700" in caplog.text
    assert index.search(queries[:0], 5).index.shape == (0, 5)


def test_bad_queries(index):
    with pytest.raises(ValueError, match="not finite"):
        index.search(torch.full((1, 6), float("nan")), 1)
    with pytest.raises(ValueError, match="rows of 6 values"):
        index.search(points(2, dim=5), 1)
    with pytest.raises(ValueError, match="k_max 0"):
        index.search(points(2), 0)


def test_a_cluster_without_room(index, monkeypatch):
    with pytest.raises(UserError, match="too small") as error, ShardedIndex([points(10)], 5):
        pass
    assert "5 workers with 1 CPU" in error.value.line()
    monkeypatch.setattr(sharded, "PATIENCE", 0.1)
    with pytest.raises(UserError, match="no room"), ShardedIndex([points(10)], 3):
        pass
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2, "memory": 1000})
    with pytest.raises(UserError, match="too small"), ShardedIndex([points(100)], 2):
        pass


@pytest.mark.slow
def test_workers_that_die_in_the_middle(index, datastore):
    queries = points(600, seed=1)
    found = index.stream(queries.split(50), 10)
    parts = [next(found)]
    died = [process_of(worker) for worker in index._shards]
    for process in died:
        os.kill(process, signal.SIGKILL)
        parts.append(next(found))
    parts += found
    whole = Neighbours(torch.cat([p.distance for p in parts]), torch.cat([p.index for p in parts]))
    assert same(whole, retrieve(datastore, queries, 10))
    assert not {process_of(worker) for worker in index._shards} & set(died)


@pytest.mark.slow
def test_a_worker_that_dies_too_often(four_cpus, monkeypatch):
    monkeypatch.setattr(sharded, "MAX_RESTARTS", 0)
    with ShardedIndex([points(10)], 2) as index:
        os.kill(process_of(index._shards[0]), signal.SIGKILL)
        with pytest.raises(RuntimeError, match="does its part fit in memory"):
            index.search(points(2), 1)


@pytest.mark.slow
def test_workers_end_with_the_context_and_where_it_cannot_begin(four_cpus, tmp_path):
    def free():
        return ray.available_resources().get("CPU", 0)

    until(lambda: free() >= 2)
    before = free()
    with ShardedIndex([points(1)], 5) as index:
        workers = [process_of(worker) for worker in index._shards]
        assert len(workers) == 1
        assert same(index.search(points(4), 1), retrieve(points(1), points(4), 1))
    with pytest.raises(RuntimeError, match="inside of its `with`"):
        index.search(points(2), 1)
    until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    rows = StoredRows.of(write(tmp_path / "a.parquet", points(10)))
    write(tmp_path / "a.parquet", points(6))
    with pytest.raises(UserError, match="rows are missing"), ShardedIndex([rows], 2):
        pass
    until(lambda: free() >= before)


@pytest.mark.parametrize(
    ("parts", "workers"),
    [([], 1), ([points(0)], 1), ([points(3), points(3, dim=7)], 1), ([points(3)], 0)],
)
def test_parts_that_make_no_index(parts, workers):
    with pytest.raises(ValueError, match="no index can be made"):
        ShardedIndex(parts, workers)


@pytest.mark.parametrize(("rows", "workers"), [(10, 3), (7, 7), (100, 8), (5, 1)])
def test_shares_are_all_rows_in_order_and_near_equal(rows, workers):
    x = torch.arange(rows)[:, None]
    dealt = list(shares([x[:2], x[2:2], x[2:5], x[5:]], workers))
    sizes = [sum(map(len, parts)) for _, parts in dealt]
    assert torch.equal(torch.cat([part for _, parts in dealt for part in parts]), x)
    assert [first for first, _ in dealt] == np.cumsum([0, *sizes[:-1]]).tolist()
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("group", [1, 4, 100])
def test_a_slice_of_a_file_reads_its_own_rows(tmp_path, group):
    x = points(23)
    whole = StoredRows.of(write(tmp_path / "a.parquet", x, group=group))
    assert (len(whole), whole.dim) == (23, 6)
    for first, stop in [(0, 23), (3, 4), (4, 12), (22, 40), (5, 5), (9, 3)]:
        rows = whole[first:stop][1:]
        read = np.empty((len(rows), 6), np.float32)
        rows.read_into(read)
        np.testing.assert_array_equal(read, x[first:stop][1:].numpy())


def test_files_that_are_no_embeddings(tmp_path):
    def refused(**columns):
        pq.write_table(pa.table(columns), tmp_path / "x.parquet")
        with pytest.raises(UserError) as error:
            StoredRows.of(tmp_path / "x.parquet", "train")
        return error.value.line()

    assert "key embedding" in refused(id=[1])
    assert "double" in refused(embedding=[[1.0], [2.0]])
    good = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 3.0], pa.float32()), 1)
    assert "no splits" in refused(embedding=good)
    assert "found: 2 rows" in refused(embedding=good, split=["train", "test", "train"])
    assert "found: 0 rows" in refused(embedding=good, split=["test"] * 3)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"x\.parquet: the embeddings cannot be read"):
        StoredRows.of(tmp_path / "x.parquet")


@pytest.mark.parametrize("values", [[[1.0, 2.0], None], [[1.0, 2.0], [None, 2.0]]])
def test_missing_values(tmp_path, values):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"embedding": pa.array(values, pa.list_(pa.float32(), 2))}), file)
    with pytest.raises(UserError, match="cannot be read"):
        StoredRows.of(file).read_into(np.empty((2, 2), np.float32))
