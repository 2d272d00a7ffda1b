"""Tests that ranks that each hold a share of the training rows evaluate like one process with all rows."""

import pyarrow.parquet as pq
import pytest
import torch
from builders import tiny_job
from training.evaluation_ranks import BATCHES, TASKS, evaluated, found, rank_of, scenes

from mlcl.evaluation import retrieve
from mlcl.testing.ranks import run_ranks
from mlcl.training.context import ONE_PROCESS
from mlcl.training.embeddings import shares
from mlcl.training.job_data import JobData
from mlcl.training.run_files import EMBEDDINGS, read_embeddings
from mlcl.training.stored_run import StoredRun


@pytest.fixture(scope="module")
def alone(tiny, tmp_path_factory):
    """Returns the results of one process, and the folder with its files."""
    folder = tmp_path_factory.mktemp("alone")
    outputs = found(ONE_PROCESS) | {task: evaluated(tiny, folder, task, ONE_PROCESS) for task in TASKS}
    return outputs, folder


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def ranks(request, tiny, tmp_path_factory):
    """Returns the results of all ranks of a group, and the folder with their files."""
    folder = tmp_path_factory.mktemp(f"ranks{request.param}")
    return run_ranks(rank_of, (folder, tiny), request.param), folder


def test_the_neighbours_are_those_of_one_search_to_the_bit(ranks):
    for output in ranks[0]:
        for (x, q, k), (distance, index) in zip(scenes(), output["neighbours"], strict=True):
            expected = retrieve(x, q, k)
            assert torch.equal(distance, expected.distance)
            assert torch.equal(index, expected.index)


def test_the_probe_is_that_of_one_process_but_for_rounding(alone, ranks):
    for output in ranks[0]:
        assert len(output["probes"]) == len(alone[0]["probes"]) == 6
        for probe, expected in zip(output["probes"], alone[0]["probes"], strict=True):
            torch.testing.assert_close(probe["weight"], expected["weight"], rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(probe["bias"], expected["bias"], rtol=1e-4, atol=1e-5)
            assert probe["table"] == expected["table"]
    for first, other in zip(ranks[0][0]["probes"], ranks[0][-1]["probes"], strict=True):
        assert torch.equal(first["weight"], other["weight"])


@pytest.mark.parametrize("task", TASKS)
def test_the_figures_are_those_of_one_process(alone, ranks, task):
    expected = alone[0][task]
    for output in ranks[0]:
        assert output[task]["quick"] == pytest.approx(expected["quick"], rel=0, abs=0, nan_ok=True)
        assert output[task]["metrics"] == pytest.approx(expected["metrics"], nan_ok=True)
        exact_names = [name for name in expected["metrics"] if "probe" not in name and "transfer" not in name]
        if task != "two_phases":
            assert {n: output[task]["metrics"][n] for n in exact_names} == pytest.approx(
                {n: expected["metrics"][n] for n in exact_names}, rel=0, abs=0, nan_ok=True
            )


def test_every_rank_holds_its_share_of_the_training_rows_alone(ranks):
    runs = [output["single"]["rows"] for output in ranks[0]]
    assert runs == shares(48, len(runs))
    assert [row for run in runs for row in run] == list(range(48))


@pytest.mark.parametrize("task", TASKS)
def test_the_parts_hold_what_one_file_holds(alone, ranks, tiny, task):
    outputs, folder = ranks
    file, parts_folder = alone[1] / task / EMBEDDINGS, folder / task / EMBEDDINGS
    assert file.is_file()
    assert [path.name for path in sorted(parts_folder.iterdir())] == [
        f"part-{rank:05d}.parquet" for rank in range(len(outputs))
    ]
    assert not list((folder / task).glob(".*"))
    sizes = [
        pq.read_table(path)["split"].to_pylist().count("train") for path in sorted(parts_folder.iterdir())
    ]
    assert sizes == [len(output[task]["rows"]) for output in outputs]
    file_table, parts_table = read_embeddings(file), read_embeddings(parts_folder)
    columns = ["id", "split", "embedding"] + ([] if task == "two_phases" else ["probabilities"])
    assert parts_table.select(columns).equals(file_table.select(columns))
    assert parts_table.schema.equals(file_table.schema)


def test_every_reader_takes_the_parts(alone, ranks, tiny, tmp_path):
    job_data = JobData.of(tiny_job(tiny, BATCHES), tmp_path)
    runs = [StoredRun.read(folder / "single", job_data) for folder in (alone[1], ranks[1])]
    for split in ("train", "validation", "test"):
        assert torch.equal(runs[0].embeddings[split], runs[1].embeddings[split])
    assert torch.equal(runs[0].probabilities["test"], runs[1].probabilities["test"])


def test_a_failure_of_one_rank_is_told_on_all(ranks):
    write_errors, folder_errors, nan_errors, file_exists = zip(
        *(output["failures"] for output in ranks[0]), strict=True
    )
    assert write_errors[-1] == "the disk is full"
    assert all("another rank could not write" in message for message in write_errors[:-1])
    assert "No such file or directory" in folder_errors[0]
    assert all("another rank could not write" in message for message in folder_errors[1:])
    assert set(nan_errors) == {"the encoder's embeddings are not finite"}
    assert not any(file_exists)
