"""Checks whether a job fits the data that it names, before anything starts."""

from __future__ import annotations

from pathlib import Path

import torch

from mlcl.config import HeadConfig, JobConfig
from mlcl.config.training_sections import ObjectiveConfig
from mlcl.data import DatasetInfo, LabelSpace, reached_by
from mlcl.data.format import plural
from mlcl.errors import UserError, did_you_mean
from mlcl.evaluation import METRICS, Task, metric_names
from mlcl.evaluation.scores import aspect_metric
from mlcl.losses import LOSSES, check_options
from mlcl.models import ENCODERS
from mlcl.training.baselines import BASELINES
from mlcl.training.baselines.jobs import unfit_reason
from mlcl.training.batches import group_sizes, sampler_labels
from mlcl.training.split_metrics import hierarchy_of

FITS = {
    "class": ("single",),
    "multi_label": ("multi_label", "single"),
    "ratings": ("aspects", "multi_label"),
    "path": ("hierarchy",),
}
"""The kinds of label space that a loss accepts, keyed by the attribute `labels` of the loss."""
TASKS: dict[tuple[str, str], Task] = {
    ("cross_entropy", "single"): "single",
    ("cross_entropy", "aspects"): "aspects",
    ("guided", "single"): "single",
    ("bce", "multi_label"): "multi_label",
    ("asl", "multi_label"): "multi_label",
    ("zlpr", "multi_label"): "multi_label",
}
"""The task of a classifier, keyed by its loss and the kind of its label space."""


def check_job(job: JobConfig, info: DatasetInfo) -> Task:
    """Returns the classifier's task. Raises UserError, with the key, if the job does not fit its data."""
    modality = ENCODERS[job.encoder.name].reads(job.encoder)
    if modality != info.modality:
        problem = f"reads {plural(modality)}, the data set {info.name} holds {plural(info.modality)}"
        raise UserError(problem, key="encoder.name", found=job.encoder.name)
    reason = "" if job.baseline is None else unfit_reason(BASELINES[job.baseline], job, info)
    if reason:
        raise UserError(reason, key="baseline", found=job.baseline)
    _check_ensemble(job, info)
    for name, head in job.objective.heads.items():
        _check_head(f"objective.heads.{name}", head, info)
    task = _check_classifier(job, info)
    _check_groups(job, info, task)
    _check_metric(job, info, task)
    _check_aspects(job, info)
    if job.data.subset is not None and job.data.subset.labels is not None:
        _find_space(info, job.data.subset.labels, "data.subset.labels")
    _check_sampler(job, info)
    _check_noise(job, info)
    size = job.train.batch_size
    if job.train.workers > size:
        raise UserError("fewer samples in a batch than workers", key="train.batch_size", found=size)
    for key in ENCODERS[job.encoder.name].files:
        file = getattr(job.encoder, key)
        if file is not None and not Path(file).expanduser().is_file():
            raise UserError("no such file", key=f"encoder.{key}", found=file)
    heads = [head for head in job.objective.heads.values() if head.weight > 0]
    view_losses = [head.loss for head in heads if LOSSES[head.loss].labels == "none"]
    if job.views == 1 and view_losses:
        problem = f"{view_losses[0]} has no positives with one view"
        raise UserError(problem, key="train.views", found=1, allowed="2 or more")
    return task


def check_network(job: JobConfig, info: DatasetInfo) -> None:
    """Raises UserError if the job's pretrained network cannot be built as its keys say; reads no weights."""
    if job.baseline is None:
        space = info.space(job.objective.classifier.labels)
        labels = space.n_classes * max(1, len(space.aspects))
        arguments = {"labels": labels, "label_graph_LL": torch.eye(labels)}
        ENCODERS[job.encoder.name].check(job.encoder, arguments)


def _check_aspects(job: JobConfig, info: DatasetInfo) -> None:
    """Raises UserError if two aspects of the classifier would log metrics of one name."""
    names: dict[str, str] = {}
    for aspect in info.space(job.objective.classifier.labels).aspects:
        first_aspect = names.setdefault(aspect_metric("accuracy", aspect), aspect)
        if first_aspect != aspect:
            problem = "two aspects differ in signs or case alone, and would have metrics of one name"
            raise UserError(problem, key="objective.classifier.labels", found=[first_aspect, aspect])


def _find_space(info: DatasetInfo, name: str, key: str) -> LabelSpace:
    try:
        return info.space(name)
    except UserError as error:
        raise error.with_fields(key=key, found=error.found or name) from None


def _check_ensemble(job: JobConfig, info: DatasetInfo) -> None:
    name, key = job.evaluation.ensemble, "evaluation.ensemble"
    if name is None:
        return
    allowed = [
        baseline.name for baseline in BASELINES.values() if baseline.restore is not None and baseline.reads
    ]
    if name not in allowed:
        problem = f"no such baseline that a model can contain{did_you_mean(name, allowed)}"
        raise UserError(problem, key=key, found=name, allowed=allowed)
    if job.baseline is not None:
        raise UserError("a baseline has no classifier beside it", key=key, found=name, allowed="null")
    if job.evaluation.metric.startswith("knn/"):
        problem = "an ensemble is chosen after the search, which the classifier's metric selects"
        raise UserError(problem, key="evaluation.metric", found=job.evaluation.metric, allowed="val/...")
    reason = unfit_reason(BASELINES[name], job, info)
    if reason:
        raise UserError(reason, key=key, found=name)


def _check_head(key: str, head: HeadConfig, info: DatasetInfo) -> None:
    try:
        check_options(head.loss, head.options)
    except ValueError as error:
        raise UserError(str(error), key=f"{key}.options") from None
    if head.queue is not None and not LOSSES[head.loss].queue:
        raise UserError(f"{head.loss} takes no queue", key=f"{key}.queue", found=head.queue, allowed="null")
    label_kind = LOSSES[head.loss].labels
    if head.labels is None or label_kind == "none":
        return
    space = _find_space(info, head.labels, f"{key}.labels")
    if space.kind not in FITS[label_kind]:
        problem = f"{head.loss} does not take this kind of label space"
        actual = f"{head.labels} ({space.kind})"
        raise UserError(problem, key=f"{key}.labels", found=actual, allowed=FITS[label_kind])
    weights, levels = head.options.get("level_weights"), len(space.levels)
    if isinstance(weights, (list, tuple)) and len(weights) != levels:
        problem = f"needs {levels} numbers, one for each level of {head.labels}, coarse first"
        raise UserError(problem, key=f"{key}.options.level_weights", found=weights)


def _check_sampler(job: JobConfig, info: DatasetInfo) -> None:
    """Raises UserError if the sampler `hierarchical` has no hierarchy, or a batch cannot hold two classes."""
    labels, name, levels = sampler_labels(job, info), job.train.sampler.name, 1
    if labels is None:
        return
    space = _find_space(info, labels, "train.sampler.labels")
    if name == "hierarchical":
        if space.kind != "hierarchy":
            actual = f"{labels} ({space.kind})"
            allowed = [
                label_name
                for label_name, label_space in info.label_spaces.items()
                if label_space.kind == "hierarchy"
            ]
            key = "train.sampler.labels"
            raise UserError("hierarchical needs a hierarchy", key=key, found=actual, allowed=allowed)
        levels = len(space.levels)
    k, branches = group_sizes(job)
    minimum = 2 * k * branches ** (levels - 1)
    size = job.train.batch_size
    if name != "balanced" and size < minimum:
        problem = f"holds no two classes of {labels} for the sampler {name}"
        raise UserError(problem, key="train.batch_size", found=size, allowed=f"{minimum} or more")


def _check_noise(job: JobConfig, info: DatasetInfo) -> None:
    """Raises UserError if the job reads labels that noise does not reach: they would reveal the true ones."""
    noise = job.data.label_noise
    if noise is None:
        return
    name = noise.labels or job.objective.classifier.labels
    _find_space(info, name, "data.label_noise.labels")
    noisy_names = reached_by(info, name)
    labels_by_key = {
        f"objective.heads.{head}.labels": section.labels for head, section in job.objective.heads.items()
    }
    labels_by_key["objective.classifier.labels"] = job.objective.classifier.labels
    labels_by_key["train.sampler.labels"] = sampler_labels(job, info)
    for key, labels in labels_by_key.items():
        if labels is not None and labels not in noisy_names:
            problem = f"stays clean: noise on {name} does not reach it"
            raise UserError(problem, key=key, found=labels, allowed=sorted(noisy_names))


def _check_classifier(job: JobConfig, info: DatasetInfo) -> Task:
    classifier = job.objective.classifier
    kind = _find_space(info, classifier.labels, "objective.classifier.labels").kind
    task = TASKS.get((classifier.loss, kind))
    value = f"{classifier.labels} ({kind})"
    if task is None:
        problem, value = "this loss does not fit this kind of label space", f"{classifier.loss} with {value}"
        allowed = [f"{loss} with {space}" for loss, space in TASKS]
        raise UserError(problem, key="objective.classifier", found=value, allowed=allowed)
    if classifier.loss == "guided":
        _check_guided(job.objective, info)
    if task != "multi_label" and ENCODERS[job.encoder.name].label_wise:
        problem = f"{job.encoder.name} classifies the labels of a multi-label space"
        raise UserError(problem, key="objective.classifier.labels", found=value)
    return task


def _check_guided(objective: ObjectiveConfig, info: DatasetInfo) -> None:
    labels = objective.classifier.labels
    trees = [space for space in info.label_spaces.values() if space.levels[:-1] and not space.parents]
    finest = [space.levels[-1] for space in trees]
    if info.own_name(labels) not in finest:
        problem, key = "guided needs the finest level of a hierarchy", "objective.classifier.labels"
        raise UserError(problem, key=key, found=labels, allowed=finest)
    if objective.classifier_weight == 0:
        raise UserError("guided is trained with the encoder", key="objective.classifier.weight", found=0)


def _check_groups(job: JobConfig, info: DatasetInfo, task: Task) -> None:
    labels = job.objective.classifier.labels
    excluded = {"", "hierarchy"} if hierarchy_of(info, labels) is None else {""}
    allowed = sorted({metric.group for metric in METRICS.values() if task in metric.tasks} - excluded)
    for group in job.evaluation.metrics:
        if group not in allowed:
            hint = did_you_mean(group, allowed)
            problem = f"no such group of metrics for the labels {labels} ({task}){hint}"
            raise UserError(problem, key="evaluation.metrics", found=group, allowed=allowed)


def _check_metric(job: JobConfig, info: DatasetInfo, task: Task) -> None:
    labels, metric, key = job.objective.classifier.labels, job.evaluation.metric, "evaluation.metric"
    space = info.space(labels)
    names = metric_names(task, space.aspects, space.n_classes, job.evaluation.metrics)
    family, _, name = metric.rpartition("/")
    if name not in names:
        is_known = name in metric_names(task, space.aspects, space.n_classes, None)
        hint = ": evaluation.metrics does not name its group" if is_known else did_you_mean(name, names)
        allowed = [f"{family}/{metric_name}" for metric_name in names]
        raise UserError(f"no such metric for this task{hint}", key=key, found=metric, allowed=allowed)
    if space.unknown and not METRICS[name].takes_unknown:
        problem = f"does not leave out the unknown entries of {labels}"
        allowed = [f"{family}/{metric_name}" for metric_name in names if METRICS[metric_name].takes_unknown]
        raise UserError(problem, key=key, found=metric, allowed=allowed)
    if family.startswith("knn/") and job.evaluation.knn is None:
        raise UserError("needs evaluation.knn", key=key, found=metric)
