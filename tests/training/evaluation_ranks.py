"""The functions that each process runs in tests/training/test_rank_evaluation.py."""

from contextlib import nullcontext
from dataclasses import replace
from unittest import mock

import pytest
import torch
from builders import tiny_job

from mlcl.evaluation import ProbeGrid, Scoring, linear_probe
from mlcl.labels import LabelRows
from mlcl.training import embeddings, run_files
from mlcl.training.builders import build_model
from mlcl.training.checkpoint import seed_all
from mlcl.training.context import Context
from mlcl.training.embeddings import RankRows, shares
from mlcl.training.evaluator import Evaluator
from mlcl.training.events import Diverged
from mlcl.training.job_data import JobData
from mlcl.training.run_files import EMBEDDINGS, PARTS, write_embeddings

KNN = "evaluation.knn={k: 5, lambda: 0.5, grid: {k: [1, 7, 60], lambda: [0, 0.5, 1], temperature: [1.0]}}"
BATCHES = "evaluation.batch_size=4"
"""A batch size that divides the ranks' shares of 48 and 24 rows, so that all runs encode equal batches."""
TASKS = {
    "single": ("evaluation.metrics=[bands, clustering, hierarchy, retrieval]",),
    "multi_label": (
        "objective.classifier={loss: bce, labels: tags}",
        "objective.heads.detail={loss: simdis, labels: tags, weight: 0.3}",
        "evaluation.metric=val/micro_f1",
        "evaluation.metrics=[bands, ranking, retrieval]",
    ),
    "ensemble": (
        "objective.classifier={loss: bce, labels: tags}",
        "objective.heads={}",
        "evaluation.metric=val/micro_f1",
        "evaluation.ensemble=tfidf_svm",
    ),
    "unseen": ("data.hold_out={labels: path, share: 0.5}", "evaluation.batch_size=1"),
    "two_phases": (
        "objective.heads.detail.weight=1",
        "objective.heads.topic.weight=0",
        "objective.classifier.weight=0",
    ),
}


def scenes():
    """Returns cases of rows, queries and k, with ties and with fewer rows than k per rank or than ranks."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(130, 6, generator=generator), torch.randn(20, 6, generator=generator)
    ties = [values.round().clamp(-1, 1) for values in vectors]
    return [
        (*vectors, 9),
        (*ties, 9),
        (torch.full((50, 3), 0.3), torch.full((4, 3), 0.3), 20),
        (vectors[0][:9], vectors[1], 6),
        (vectors[0][:3], vectors[1], 2),
        (vectors[0][:3], vectors[1], 5),
        (vectors[0], vectors[1][:0], 4),
    ]


def probe_scenes():
    """Returns cases of a probe with targets of every task; in the second, the first quarter has no class.

    The features of the last case are one vector per label.
    """
    generator = torch.Generator().manual_seed(1)
    x_ND = torch.randn(61, 5, generator=generator) * 10 + 100
    class_N = torch.randint(0, 3, (61,), generator=generator)
    few_N = torch.where(torch.arange(61) < 16, -1, class_N)
    rating_NA = torch.stack([class_N, torch.where(torch.arange(61) % 3 == 0, -1, few_N)], dim=1)
    lists = [sorted({c, 2}) if c else [] for c in class_N.tolist()]
    rows = LabelRows.from_lists(lists, 3)
    # All labels of the first quarter of the rows are unknown.
    unknown = [[0, 1, 2] if i < 16 else [i % 3] for i in range(61)]
    positives = [
        sorted({*row} - {*unknown_labels}) for row, unknown_labels in zip(lists, unknown, strict=True)
    ]
    partial_rows = replace(LabelRows.from_lists(positives, 3), unknown=LabelRows.from_lists(unknown, 3))
    return [
        (x_ND, class_N, "single", 3),
        (x_ND, few_N, "single", 3),
        (x_ND, rating_NA, "aspects", 3),
        (x_ND, rows, "multi_label", 3),
        (x_ND, partial_rows, "multi_label", 3),
        (
            x_ND.unsqueeze(1) + torch.arange(3).view(1, 3, 1) * x_ND.flip(0).unsqueeze(1),
            partial_rows,
            "multi_label",
            3,
        ),
    ]


def own_rows(values_ND, context):
    share = shares(len(values_ND), context.world_size)[context.rank]
    return RankRows(values_ND[share.start : share.stop], share.start, context)


def found(context):
    """Returns the neighbours and probes of all cases, as this rank computes them."""
    with mock.patch.object(embeddings, "QUERIES_AT_ONCE", 8):
        nearest = [own_rows(x, context).retrieve(q, k, len(x)) for x, q, k in scenes()]
    grid = ProbeGrid(lrs=(1e-2, 1e-1), weight_decays=(0.0, 1e-2), epochs=3, batch_size=16, seed=0)
    probes = []
    for x_ND, targets, task, n_classes in probe_scenes():
        metric = "micro_f1" if task == "multi_label" else "accuracy"
        probe = linear_probe(
            own_rows(x_ND, context).for_probe(targets),
            x_ND,
            targets,
            task=task,
            n_classes=n_classes,
            grid=grid,
            scoring=Scoring(metric, "max"),
        )
        probes.append({"weight": probe.weight, "bias": probe.bias, "table": probe.table.tolist()})
    return {"neighbours": [(result.distance, result.index) for result in nearest], "probes": probes}


def evaluated(data, folder, task, context):
    """Returns the metrics of an untrained model and writes its embeddings into the folder."""
    transfer = (f"evaluation.transfer_to.path={data}", "evaluation.transfer_to.labels=detail")
    if task == "unseen":  # with few words rows are equal, and rounding decides the transfer's probe
        transfer = ()
    job = tiny_job(data, KNN, BATCHES, "evaluation.probe={epochs: 3}", *TASKS[task], *transfer)
    job_data = JobData.of(job, folder / "home")
    seed_all(0)
    model = build_model(job_data)
    evaluator = Evaluator(job_data, model, context)
    quick_metrics = evaluator.quick()
    result = evaluator.evaluate_final(test=True, tell=lambda _: None)
    run = folder / task
    if context.is_main:
        run.mkdir(parents=True)
        (run / PARTS).mkdir()  # left by a group that was killed
        (run / PARTS / "part-00007.parquet").touch()
    write_embeddings(run, job_data, result)
    return {"quick": quick_metrics, "metrics": result.metrics, "rows": result.train.numbers}


def rank_of(_rank, folder, data):
    context = Context.current("cpu")
    outputs = found(context) | {task: evaluated(data, folder, task, context) for task in TASKS}
    return outputs | {"failures": failures(data, folder / "failed", context)}


def failures(data, folder, context):
    """Returns a rank's errors if the last rank cannot write, the folder is missing, or a weight is NaN."""
    is_last = context.rank == context.world_size - 1
    job_data = JobData.of(tiny_job(data, BATCHES), folder / "home")
    model = build_model(job_data)
    evaluator = Evaluator(job_data, model, context)
    result = evaluator.evaluate_final(test=False, tell=lambda _: None)
    disk = mock.patch.object(run_files.pq, "write_table", side_effect=OSError("the disk is full"))
    with (
        disk if is_last else nullcontext(),
        pytest.raises(OSError, match=r"disk|another rank") as write_error,
    ):
        write_embeddings(folder, job_data, result)
    with pytest.raises(OSError, match=r"absent") as folder_error:
        write_embeddings(folder / "absent", job_data, result)
    if is_last:
        next(model.encoder.parameters()).data.fill_(float("nan"))
    with pytest.raises(Diverged) as nan_error:
        evaluator.quick()
    return [
        str(write_error.value),
        str(folder_error.value),
        str(nan_error.value),
        (folder / EMBEDDINGS).exists(),
    ]
