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


def jobs_of_two(module_rows):
    jobs = [job(module_rows, case, "mean_valid", (5, 9)) for case in CASES]
    jobs += [job(module_rows, ("simdis", {}), r, s) for r in REDUCTIONS for s in SPLITS]
    jobs += [job(module_rows, ("knn", {}), r, (14, 0)) for r in REDUCTIONS]
    jobs += [job(module_rows, ("supcon", {}), "mean", (9, 5), normalize=True)]
    jobs += [job(module_rows, ("mulsupcon", {}), "mean", (9, 5), dense=True)]
    jobs += [
        job(module_rows, (name, {}), "mean", (9, 5), engine="dense")
        for name in ("simdis", "knn", "himulcone", "msc", "sincere")
    ]
    jobs += [
        job(module_rows, case, r, s, engine=engine, prototypes=(module_rows.width, 3))
        for case in (("msc", {"beta": 2.0}), ("reg", {}))
        for r, s, engine in (("mean", (9, 5), "auto"), ("mean_valid", (14, 0), "dense"))
    ]
    return jobs


def jobs_of_four(module_rows):
    """Returns jobs of four ranks; in most jobs one rank has no rows."""
    jobs = [job(module_rows, case, "mean", (6, 0, 5, 3)) for case in CASES]
    prototypes = (module_rows.width, 3)
    jobs += [job(module_rows, ("msc", {}), "mean", (3, 5, 2, 4), normalize=True, prototypes=prototypes)]
    return jobs


JOBS = {2: jobs_of_two, 4: jobs_of_four}


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def group(request, module_rows):
    """Returns the jobs, and the answers of each of two or four processes."""
    jobs = JOBS[request.param](module_rows)
    return jobs, run_ranks(work, (jobs,), request.param)


def single(task):
    model = Model(task["x"].shape[1], *task["loss"])
    value = model(task["x"], task["labels"], task["samples"])
    value.sum().backward()
    return value.detach(), model.gradients()


def close(found, expected, name):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, msg=lambda text: f"{name}: {text}")


def test_processes_equal_one(group):
    jobs, ranks = group
    for number, task in enumerate(jobs):
        answers = [rank["answers"][number] for rank in ranks]
        value, gradients = single(task)
        if task["loss"][1]["reduction"] == "none":
            rank_value = torch.cat([answer["value"] for answer in answers])
            # DDP takes the mean over processes, so the gradients of unscaled terms are divided.
            gradients = [gradient / len(ranks) for gradient in gradients]
        else:
            rank_value = sum(answer["value"] for answer in answers) / len(ranks)
        close(rank_value, value, task["id"])
        for answer in answers:
            for rank_gradient, expected in zip(answer["gradients"], gradients, strict=True):
                assert expected.abs().sum() > 0
                close(rank_gradient, expected, task["id"])
        assert [answer["anchors"] for answer in answers] == list(task["split"])


def test_without_gather_nothing_is_sent(group):
    (task, *_), ranks = group
    for rank, rows in enumerate(torch.arange(len(task["x"])).split(task["split"])):
        rank_task = {**task, "x": task["x"][rows]}
        rank_task |= {key: take(task[key], rows) for key in ("labels", "samples")}
        value, gradients = single(rank_task)
        assert ranks[rank]["alone"]["value"] == value
        for gradient, expected in zip(ranks[rank]["alone"]["gradients"], gradients, strict=True):
            assert torch.equal(gradient, expected)


def test_embeddings_of_two_widths_may_be_gathered_at_once(group):
    for rank in group[1]:
        for first, second in zip(*rank["together"], strict=True):
            close(first, second, "gathered at once")
    assert all(value.abs().sum() > 0 for value in group[1][0]["together"][0])


def test_label_rows_of_different_widths_are_refused(group):
    widths = list(range(1, len(group[1]) + 1))
    assert {rank["widths"] for rank in group[1]} == {f"label rows of different widths on the ranks: {widths}"}


def test_gather_without_processes_is_the_plain_loss(module_rows):
    task = job(module_rows, ("simdis", {}), "mean", (14, 0))
    model = Model(5, *task["loss"], gather=True)
    assert model(task["x"], task["labels"], task["samples"]) == single(task)[0]
