"""The job's sampler: its label space, its sizes and its module."""

from __future__ import annotations

from mlcl.config import JobConfig
from mlcl.data import Balanced, DatasetInfo, EpochSampler, Grouped, Split, class_tree
from mlcl.data.sampler import Order
from mlcl.errors import UserError

KEY = "train.sampler"


def sampler_labels(job: JobConfig, info: DatasetInfo) -> str | None:
    """The label space that the job's sampler reads; None: it reads no labels.

    Raises UserError for hierarchical without a label space where the job names no hierarchy.
    """
    given = job.train.sampler
    classifier = job.objective.classifier.labels
    if given.name == "uniform":
        return None
    if given.labels is not None:
        return given.labels
    if given.name != "hierarchical":
        return classifier
    hierarchies = {name: space for name, space in info.label_spaces.items() if space.kind == "hierarchy"}
    of_heads = [head.labels for head in job.objective.heads.values() if head.labels in hierarchies]
    of_classifier = [name for name, space in hierarchies.items() if space.levels[-1] == classifier]
    if not (of_heads or of_classifier):
        raise UserError("no head has a hierarchy", key=f"{KEY}.labels", allowed=list(hierarchies))
    return (of_heads or of_classifier)[0]


def build_sampler(job: JobConfig, train: Split, rank: int, world_size: int) -> EpochSampler:
    """The sampler of one process over the training rows.

    Raises UserError for rows that make no batch, or that are of one class where the sampler reads labels.
    """
    settings = job.train
    order = _order(job, train)
    try:
        return EpochSampler(
            len(train), settings.batch_size, settings.seed, rank, world_size, settings.drop_last, order
        )
    except ValueError as error:
        raise UserError(str(error), key="train.batch_size", found=settings.batch_size) from None


def _order(job: JobConfig, train: Split) -> Order | None:
    labels, size = sampler_labels(job, train.info), job.train.batch_size
    if labels is None:
        return None
    levels = class_tree(train, labels)
    if len(levels[0].members) < 2:
        raise UserError("the training rows are of one class", key=f"{KEY}.labels", found=labels)
    if job.train.sampler.name == "balanced":
        return Balanced(levels[-1], len(train), size, job.train.sampler.power or 0.0)
    k, branches = group_sizes(job)
    return Grouped(levels, len(train), size, k, branches)


def group_sizes(job: JobConfig) -> tuple[int, int]:
    """Rows of a finest class, and finer classes of a class, in a batch of pk or hierarchical."""
    given = job.train.sampler
    return given.k or (4 if given.name == "pk" else 2), given.branches or 2
