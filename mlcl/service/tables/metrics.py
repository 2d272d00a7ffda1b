"""What a run of a job writes down, so that a table cannot ask for what will not be there."""

from __future__ import annotations

from pathlib import Path

from mlcl.config.space import HALF_SUFFIX
from mlcl.config.table import Cell
from mlcl.data import DatasetInfo
from mlcl.errors import UserError, did_you_mean
from mlcl.evaluation import METRICS, embedding_metrics, metric_names
from mlcl.training.job_data import JobData
from mlcl.training.unseen import unseen_names

SPLITS = ("val", "test")


def check_metrics(cell: Cell, job_data: JobData, file: Path) -> None:
    """Raises UserError where a run of this cell does not write down what the table shows."""
    known = run_metrics(job_data)
    if cell.neighbours:
        # What a run left answers for other neighbours, but for the coarser levels of a class.
        coarse = {f"accuracy_{level}" for level in _coarser(job_data)}
        known = [
            name for name in known if not (name.startswith("knn/") and name.rpartition("/")[2] in coarse)
        ]
    for figure in cell.figures:
        if figure.metric not in known:
            raise UserError(
                f"no run of cell {cell.id} has this metric{did_you_mean(figure.metric, known)}",
                file=file,
                key="metrics",
                found=figure.metric,
                allowed=known,
            )


def run_metrics(job_data: JobData) -> list[str]:
    """The figures of a finished run of the material's job, by name, on validation and on test."""
    job = job_data.job
    names = [*_names(job_data), *(f"accuracy_{level}" for level in _coarser(job_data))]
    if job.baseline is not None:
        return [f"{split}/{name}" for split in SPLITS for name in names]
    near = [*names, "neighbour_overlap"] if job_data.task == "multi_label" else names
    of_embeddings = [metric.name for metric in embedding_metrics(job.evaluation.metrics)]
    families = {"": [*names, *of_embeddings]}
    if job.evaluation.knn is not None:
        families["knn/"] = near
        if job.evaluation.knn.grid is not None:
            families["knn_best/"] = near
    if job.evaluation.probe is not None and job.objective.classifier_weight > 0:
        families["probe/"] = names  # in two phases the probe is the classifier
    if job_data.transfer is not None:
        other = job_data.transfer
        space = other.dataset.info.space(other.config.labels)
        families["transfer/"] = list(metric_names(other.task, space.aspects, space.n_classes))
    unseen = unseen_names(job_data)
    return unseen + [
        f"{family}{split}/{name}" for family, all_ in families.items() for split in SPLITS for name in all_
    ]


def _names(job_data: JobData) -> tuple[str, ...]:
    space = job_data.dataset.info.space(job_data.job.objective.classifier.labels)
    groups = job_data.job.evaluation.metrics
    names = metric_names(job_data.task, space.aspects, space.n_classes, groups)
    if job_data.task != "multi_label" or isinstance(job_data.job.evaluation.threshold, float):
        return names
    return (*names, *(f"{name}{HALF_SUFFIX}" for name in names if METRICS[name].thresholded))


def _coarser(job_data: JobData) -> list[str]:
    """The levels above the classifier's, where that is a level of a hierarchy of single spaces."""
    info: DatasetInfo = job_data.dataset.info
    labels = job_data.job.objective.classifier.labels
    single = info.space(labels).kind == "single"
    hierarchies = [space.levels for space in info.label_spaces.values() if single and labels in space.levels]
    coarser = (level for levels in hierarchies for level in levels[: levels.index(labels)])
    return list(dict.fromkeys(coarser))
