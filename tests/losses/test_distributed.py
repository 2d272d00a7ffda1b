import pytest
import torch
import torch.multiprocessing as mp
from oracles import CASES, case_id
from two_ranks import Model, take, work

SPLITS = [(7, 7), (9, 5), (13, 1), (14, 0)]
REDUCTIONS = ["mean", "sum", "mean_valid", "none"]


def job(rows, case, reduction, split, normalize=False, dense=False, engine="auto"):
    name, options = case
    labels = rows.labels(name)
    return {
        "loss": (name, options, reduction, normalize, engine),
        "x": rows.z,
        "labels": labels.dense().bool() if dense else labels,
        "samples": rows.sample_ids(),
        "split": split,
        "id": f"{case_id(case)} {reduction} {split} normalize={normalize} dense={dense} {engine}",
    }


@pytest.fixture(scope="module")
def jobs(module_rows):
    every = [job(module_rows, case, "mean", (9, 5)) for case in CASES]
    every += [job(module_rows, case, "mean_valid", (5, 9)) for case in CASES]
    every += [job(module_rows, ("simdis", {}), r, s) for r in REDUCTIONS for s in SPLITS]
    every += [job(module_rows, ("knn", {}), r, (14, 0)) for r in REDUCTIONS]
    every += [job(module_rows, ("supcon", {}), "mean", (9, 5), normalize=True)]
    every += [job(module_rows, ("mulsupcon", {}), "mean", (9, 5), dense=True)]
    return every


@pytest.fixture(scope="module")
def ranks(jobs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(work, args=(2, str(folder), jobs), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def single(task):
    model = Model(task["x"].shape[1], *task["loss"])
    value = model(task["x"], task["labels"], task["samples"])
    value.sum().backward()
    return value.detach(), model.gradients()


def close(found, expected, name):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, msg=lambda text: f"{name}: {text}")


def test_two_processes_equal_one(jobs, ranks):
    for number, task in enumerate(jobs):
        first, second = (rank["answers"][number] for rank in ranks)
        value, gradients = single(task)
        if task["loss"][2] == "none":
            found = torch.cat([first["value"], second["value"]])
            # DDP's mean over two processes halves what unscaled terms give.
            gradients = [gradient / 2 for gradient in gradients]
        else:
            found = (first["value"] + second["value"]) / 2
        close(found, value, task["id"])
        for side in (first, second):
            for one, expected in zip(side["gradients"], gradients, strict=True):
                assert expected.abs().sum() > 0
                close(one, expected, task["id"])
        assert [first["anchors"], second["anchors"]] == list(task["split"])


def test_without_gather_nothing_is_sent(jobs, ranks):
    task = jobs[0]
    for rank, rows in enumerate(torch.arange(len(task["x"])).split(task["split"])):
        own = {**task, "x": task["x"][rows]}
        own |= {key: take(task[key], rows) for key in ("labels", "samples")}
        value, gradients = single(own)
        assert ranks[rank]["alone"]["value"] == value
        for one, expected in zip(ranks[rank]["alone"]["gradients"], gradients, strict=True):
            assert torch.equal(one, expected)


def test_label_rows_of_different_widths_are_refused(ranks):
    assert [rank["widths"] for rank in ranks] == ["label rows of different widths on the ranks: [1, 2]"] * 2


def test_gather_without_processes_is_the_plain_loss(module_rows):
    task = job(module_rows, ("simdis", {}), "mean", (14, 0))
    model = Model(5, *task["loss"], gather=True)
    assert model(task["x"], task["labels"], task["samples"]) == single(task)[0]
