"""From a checked job to modules: the one place where the schema's keys become keyword arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlcl.config import HeadConfig, JobConfig
from mlcl.config.job import LearnedTemperature, TemperatureSchedule
from mlcl.data import DatasetInfo, EpochSampler
from mlcl.losses import (
    LOSSES,
    ConstantTemperature,
    ContrastiveLoss,
    ScheduledTemperature,
    Temperature,
    build_loss,
)
from mlcl.losses import LearnedTemperature as LearnedTemperatureModule
from mlcl.models import LinearClassifier, build_encoder, build_projection
from mlcl.training.batches import Rows
from mlcl.training.context import Context
from mlcl.training.events import Listener
from mlcl.training.loop import Loop
from mlcl.training.memory import check_micro_batch
from mlcl.training.objective import Classifier, ContrastiveModel, Head, Objective
from mlcl.training.optim import build_optimizer, build_schedule


def build_model(job: JobConfig, info: DatasetInfo, vocabulary_size: int | None) -> ContrastiveModel:
    """Encoder, heads and classifier. Parts of weight 0 are left out."""
    encoder = build_encoder(job.encoder, vocabulary_size)
    dim = int(encoder.dim)  # type: ignore[arg-type]
    heads = {name: _head(head, dim, info) for name, head in job.objective.heads.items() if head.weight > 0}
    classifier = None
    weight = job.objective.classifier_weight
    if weight > 0:
        space = info.space(job.objective.classifier.labels)
        linear = LinearClassifier(dim, space.n_classes, aspects=len(space.aspects) or None)
        classifier = Classifier(linear, weight)
    return ContrastiveModel(encoder, Objective(heads, classifier))


def _head(config: HeadConfig, dim: int, info: DatasetInfo) -> Head:
    projection = build_projection(config.projection, dim)
    prototypes = None
    if LOSSES[config.loss].prototypes and config.labels is not None:
        projected = dim if config.projection.kind == "identity" else config.projection.dim
        prototypes = (info.space(config.labels).n_classes, projected)
    return Head(projection, _loss(config, prototypes), config.weight)


def _loss(config: HeadConfig, prototypes: tuple[int, int] | None) -> ContrastiveLoss:
    return build_loss(
        config.loss,
        temperature=_temperature(config),
        reduction=config.reduction,
        normalize=config.unit_length,
        gather=True,
        prototypes=prototypes,
        **config.options,
    )


def _temperature(config: HeadConfig) -> Temperature:
    given = config.temperature
    if isinstance(given, TemperatureSchedule):
        return ScheduledTemperature(given.start, given.end, given.schedule)
    if isinstance(given, LearnedTemperature):
        return LearnedTemperatureModule(given.learned)
    return ConstantTemperature(given)


def build_loop(
    job: JobConfig,
    model: ContrastiveModel,
    rows: Rows,
    context: Context,
    *,
    checkpoint: Path | None,
    identity: dict[str, str],
    listener: Listener,
    validate: Callable[[], dict[str, float]],
    should_stop: Callable[[], bool],
) -> Loop:
    """The loop over `rows` with the job's optimiser and schedule.

    Raises UserError for a micro-batch that is too small for the encoder.
    """
    train = job.train
    check_micro_batch(train.micro_batch_size, model.encoder)
    sampler = EpochSampler(
        len(rows), train.batch_size, train.seed, context.rank, context.world_size, train.drop_last
    )
    optimizer = build_optimizer(model, train.optimizer, train.lr, train.weight_decay, train.momentum)
    steps = train.epochs * sampler.steps_per_epoch
    return Loop(
        model=model,
        optimizer=optimizer,
        schedule=build_schedule(optimizer, train.schedule, steps, train.warmup),
        rows=rows,
        sampler=sampler,
        context=context,
        epochs=train.epochs,
        views=train.views,
        micro_batch_size=train.micro_batch_size,
        precision=train.precision,
        clip_norm=train.clip_norm,
        validate_every=job.evaluation.every,
        checkpoint_every=train.checkpoint_every,
        checkpoint=checkpoint,
        identity=identity,
        listener=listener,
        validate=validate,
        should_stop=should_stop,
    )
