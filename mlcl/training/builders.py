"""Builds the model and the loop of a checked job: here the job's keys become keyword arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from mlcl.config import HeadConfig, JobConfig
from mlcl.config.space import default_mode
from mlcl.config.training_sections import LearnedTemperature, TemperatureSchedule
from mlcl.data import DatasetInfo, EpochSampler, LabelSpace
from mlcl.losses import (
    LOSSES,
    ConstantTemperature,
    FloatProducts,
    ScheduledTemperature,
    Temperature,
    build_loss,
)
from mlcl.losses import LearnedTemperature as LearnedTemperatureModule
from mlcl.models import (
    ENCODERS,
    LinearClassifier,
    Projection,
    PrototypeClassifier,
    WithOwnLogits,
    build_encoder,
)
from mlcl.training.batches import Rows, memory_format
from mlcl.training.classifier import Classifier, classifier_loss
from mlcl.training.context import Context
from mlcl.training.embeddings import label_logits
from mlcl.training.grad_cache import check_micro_batch
from mlcl.training.loop import Loop
from mlcl.training.loop_settings import Callbacks, LoopSettings, Patience
from mlcl.training.objective import ContrastiveModel, Head, Objective
from mlcl.training.optim import build_optimizer, build_schedule

LEAST_PATIENCE = 10
"""Least patience of `auto` in validations: a multi-label metric may stay at 0 for the first few."""


def build_model(
    job: JobConfig,
    info: DatasetInfo,
    vocabulary_size: int | None,
    label_graph_LL: Tensor | None = None,
    class_distance_CC: Tensor | None = None,
    target_weight: Tensor | None = None,
    input_columns: Mapping[str, int] | None = None,
) -> ContrastiveModel:
    """Builds encoder, heads and classifier, without parts of weight 0.

    Args:
        job: The job.
        info: The description of its data set.
        vocabulary_size: The size of the tokenizer's vocabulary.
        label_graph_LL: The co-occurrence of labels, for an encoder that needs it.
        class_distance_CC: Distances of classes, for the classifier `guided`.
        target_weight: Weights of labels or classes, for a classifier that has them.
        input_columns: The number of columns of each frozen input.
    """
    given = job.objective.classifier
    space = info.space(given.labels)
    encoder = build_encoder(
        job.encoder,
        vocabulary_size=vocabulary_size,
        labels=space.n_classes * max(1, len(space.aspects)),
        label_graph_LL=label_graph_LL,
        input_columns=input_columns,
    )
    dim = int(encoder.dim)  # type: ignore[arg-type]
    wanted = {name: head for name, head in job.objective.heads.items() if head.weight > 0}
    heads = {name: _head(head, dim, info, job.train.products) for name, head in wanted.items()}
    classifier = None
    if job.objective.classifier_weight > 0:
        layer = classifier_layer(job, encoder, space, class_distance_CC)
        prototypes = (part for part in layer.modules() if isinstance(part, PrototypeClassifier))
        regulariser = next((part.regulariser for part in prototypes), None)
        loss = classifier_loss(given, target_weight)
        weight = job.objective.classifier_weight
        classifier = Classifier(layer, weight, loss, given.reduction, regulariser)
    return ContrastiveModel(encoder, Objective(heads, classifier, label_logits(encoder)))


def classifier_layer(
    job: JobConfig, encoder: nn.Module, space: LabelSpace, class_distance_CC: Tensor | None
) -> nn.Module:
    """Builds the classifier's layer, which adds the encoder's own logits, if any, to its own."""
    config, dim = job.objective.classifier, int(encoder.dim)  # type: ignore[arg-type]
    if ENCODERS[job.encoder.name].label_wise:
        return WithOwnLogits(dim)
    layer: nn.Module = linear_layer(dim, space)
    if config.loss == "guided":
        assert class_distance_CC is not None
        layer = PrototypeClassifier(dim, class_distance_CC, weight=config.distortion)
    return WithOwnLogits(dim, layer) if label_logits(encoder) else layer


def linear_layer(dim: int, space: LabelSpace) -> nn.Module:
    """Builds the linear layer from embeddings (R, D) to the logits of a label space."""
    return LinearClassifier(dim, space.n_classes, aspects=len(space.aspects) or None)


def _head(config: HeadConfig, dim: int, info: DatasetInfo, products: FloatProducts) -> Head:
    given = config.projection
    projection = Projection(
        given.kind, dim, dim=given.dim, hidden=given.hidden, normalize_input=given.normalize_input
    )
    prototypes = None
    if LOSSES[config.loss].prototypes and config.labels is not None:
        prototypes = (info.space(config.labels).n_classes, projection.dim)
    loss = build_loss(
        config.loss,
        temperature=_temperature(config),
        reduction=config.reduction,
        normalize=config.unit_length,
        gather=True,
        products=products,
        prototypes=prototypes,
        **config.options,
    )
    # Heads on the embedding itself share its pairs.
    plain = given.kind == "identity" and not given.normalize_input
    return Head(nn.Identity() if plain else projection, loss, config.weight)


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
    sampler: EpochSampler,
    context: Context,
    *,
    checkpoint: Path | None,
    identity: dict[str, str],
    callbacks: Callbacks,
) -> Loop:
    """Builds the loop over the batches of `rows` with the job's optimiser and schedule, see `Loop`.

    Raises:
        UserError: The micro-batch is too small for the encoder.
    """
    train = job.train
    check_micro_batch(train.micro_batch_size, model.encoder)
    model.encoder.to(memory_format=memory_format(context.device))
    optimizer = build_optimizer(
        model, train.optimizer, train.lr, train.weight_decay, train.momentum, train.encoder_lr
    )
    steps = train.epochs * sampler.steps_per_epoch
    return Loop(
        model=model,
        optimizer=optimizer,
        schedule=build_schedule(optimizer, train.schedule, steps, train.warmup),
        rows=replace(rows.resident(context.device), compile=bool(train.compile)),
        sampler=sampler,
        context=context,
        settings=LoopSettings(
            epochs=train.epochs,
            views=job.views,
            micro_batch_size=train.micro_batch_size,
            precision=train.precision,
            clip_norm=train.clip_norm,
            validate_every=job.evaluation.every,
            checkpoint_every=train.checkpoint_every,
            patience=_patience(job),
            log_gradients=train.log_gradients,
            compile=train.compile,
        ),
        callbacks=callbacks,
        checkpoint=checkpoint,
        identity=identity,
    )


def _patience(job: JobConfig) -> Patience | None:
    wanted, metric = job.train.patience, job.evaluation.metric
    if wanted is None:
        return None
    if wanted == "auto":
        validations = math.ceil(job.train.epochs / job.evaluation.every)
        wanted = max(LEAST_PATIENCE, math.ceil(validations / 4))
    return Patience(wanted, metric, default_mode(metric.rpartition("/")[2]))
