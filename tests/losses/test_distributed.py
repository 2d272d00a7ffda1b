import pytest
import torch
from losses.oracles import CASES
from losses.two_ranks import Model, work

from mlcl.testing.loss_batches import case_id, take
from mlcl.testing.ranks import run_ranks

SPLITS = [(7, 7), (9, 5), (13, 1), (14, 0)]
REDUCTIONS = ["mean", "sum", "mean_valid", "none"]


def job(rows, case, reduction, split, dense=False, **how):
    name, options = case
    labels = rows.labels(name)
    return {
        "loss": (name, {"reduction": reduction, **how, **options}),
        "x": rows.z,
        "labels": labels.dense().bool() if dense else labels,
        "samples": rows.sample_ids(),
        "split": split,
        "id": f"{case_id(case)} {reduction} {split} dense={dense} {how}",
    }


@pytest.fixture(scope="module")
def jobs(module_rows):
    every = [job(module_rows, case, "mean_valid", (5, 9)) for case in CASES]
    every += [job(module_rows, ("simdis", {}), r, s) for r in REDUCTIONS for s in SPLITS]
    every += [job(module_rows, ("knn", {}), r, (14, 0)) for r in REDUCTIONS]
    every += [job(module_rows, ("supcon", {}), "mean", (9, 5), normalize=True)]
    every += [job(module_rows, ("mulsupcon", {}), "mean", (9, 5), dense=True)]
    every += [
        job(module_rows, (name, {}), "mean", (9, 5), engine="dense")
        for name in ("simdis", "knn", "himulcone", "msc")
    ]
    every += [
        job(module_rows, ("msc", {"beta": 2.0}), r, s, engine=engine, prototypes=(module_rows.width, 3))
        for r, s, engine in (("mean", (9, 5), "auto"), ("mean_valid", (14, 0), "dense"))
    ]
    return every


@pytest.fixture(scope="module")
def four_jobs(module_rows):
    """Four ranks, one of them without rows."""
    every = [job(module_rows, case, "mean", (6, 0, 5, 3)) for case in CASES]
    prototypes = (module_rows.width, 3)
    every += [job(module_rows, ("msc", {}), "mean", (3, 5, 2, 4), normalize=True, prototypes=prototypes)]
    return every


@pytest.fixture(scope="module")
def ranks(jobs, tmp_path_factory):
    return run(2, jobs, tmp_path_factory)


@pytest.fixture(scope="module")
def four_ranks(four_jobs, tmp_path_factory):
    return run(4, four_jobs, tmp_path_factory)


def run(world, jobs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    torch.save(jobs, folder / "jobs.pt")  # more tensors than `run_ranks` takes
    run_ranks(work, (world, str(folder)), world)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(world)]


def single(task):
    model = Model(task["x"].shape[1], *task["loss"])
    value = model(task["x"], task["labels"], task["samples"])
    value.sum().backward()
    return value.detach(), model.gradients()


def close(found, expected, name):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, msg=lambda text: f"{name}: {text}")


def check_ranks(jobs, ranks):
    for number, task in enumerate(jobs):
        answers = [rank["answers"][number] for rank in ranks]
        value, gradients = single(task)
        if task["loss"][1]["reduction"] == "none":
            found = torch.cat([answer["value"] for answer in answers])
            # DDP's mean over processes divides what unscaled terms give.
            gradients = [gradient / len(ranks) for gradient in gradients]
        else:
            found = sum(answer["value"] for answer in answers) / len(ranks)
        close(found, value, task["id"])
        for answer in answers:
            for one, expected in zip(answer["gradients"], gradients, strict=True):
                assert expected.abs().sum() > 0
                close(one, expected, task["id"])
        assert [answer["anchors"] for answer in answers] == list(task["split"])


def test_two_processes_equal_one(jobs, ranks):
    check_ranks(jobs, ranks)


@pytest.mark.slow
def test_four_processes_equal_one(four_jobs, four_ranks):
    check_ranks(four_jobs, four_ranks)


def test_without_gather_nothing_is_sent(jobs, ranks):
    task = jobs[0]
    for rank, rows in enumerate(torch.arange(len(task["x"])).split(task["split"])):
        own = {**task, "x": task["x"][rows]}
        own |= {key: take(task[key], rows) for key in ("labels", "samples")}
        value, gradients = single(own)
        assert ranks[rank]["alone"]["value"] == value
        for one, expected in zip(ranks[rank]["alone"]["gradients"], gradients, strict=True):
            assert torch.equal(one, expected)


@pytest.mark.parametrize("group", ["ranks", pytest.param("four_ranks", marks=pytest.mark.slow)])
def test_embeddings_of_two_widths_may_be_gathered_at_once(group, request):
    ranks = request.getfixturevalue(group)
    for rank in ranks:
        for one, other in zip(*rank["together"], strict=True):
            close(one, other, "gathered at once")
    assert all(value.abs().sum() > 0 for value in ranks[0]["together"][0])


def test_label_rows_of_different_widths_are_refused(ranks):
    assert [rank["widths"] for rank in ranks] == ["label rows of different widths on the ranks: [1, 2]"] * 2


def test_gather_without_processes_is_the_plain_loss(module_rows):
    task = job(module_rows, ("simdis", {}), "mean", (14, 0))
    model = Model(5, *task["loss"], gather=True)
    assert model(task["x"], task["labels"], task["samples"]) == single(task)[0]
