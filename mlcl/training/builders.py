"""Builds the model and the training loop of a job, whose keys become keyword arguments here."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from mlcl.config import HeadConfig, JobConfig, job_hash
from mlcl.config.space.search import default_mode
from mlcl.config.training_sections import LearnedTemperatureConfig, TemperatureSchedule
from mlcl.data import DatasetInfo, LabelSpace, class_parents
from mlcl.labels import LabelRows
from mlcl.losses import (
    LOSSES,
    ConstantTemperature,
    LearnedTemperature,
    ScheduledTemperature,
    Temperature,
    build_loss,
)
from mlcl.models import (
    ENCODERS,
    LinearClassifier,
    Projection,
    PrototypeClassifier,
    WithOwnLogits,
    build_encoder,
    label_graph,
    tree_distances,
)
from mlcl.training.batches import build_sampler, memory_format
from mlcl.training.classifier import Classifier, classifier_loss, target_weight
from mlcl.training.context import Context
from mlcl.training.embeddings import label_logits
from mlcl.training.grad_cache import check_micro_batch, least_samples
from mlcl.training.job_data import JobData
from mlcl.training.loop import Loop
from mlcl.training.loop_settings import Callbacks, Patience
from mlcl.training.objective import ContrastiveModel, Head, Objective

LEAST_PATIENCE = 10
"""The fewest validations that `patience: auto` waits: a multi-label metric may be 0 in the first few."""


def build_model(job_data: JobData) -> ContrastiveModel:
    """Builds the encoder, the heads and the classifier of a job; parts of weight 0 are not built."""
    job, info, space = job_data.job, job_data.dataset.info, job_data.space
    logits = space.n_classes * max(1, len(space.aspects))
    graph, targets = None, job_data.targets(job_data.train)
    if ENCODERS[job.encoder.name].needs("label_graph_LL") and isinstance(targets, LabelRows):
        graph = label_graph(targets.without_unknown())
    encoder = build_encoder(
        job.encoder,
        vocabulary_size=None if job_data.tokenizer is None else job_data.tokenizer.get_vocab_size(),
        labels=logits,
        label_graph_LL=graph,
        input_columns=None if job_data.features is None else job_data.features.columns,
    )
    dim = int(encoder.dim)  # type: ignore[arg-type]
    heads = {
        name: _build_head(head, logits if head.projection.kind == "logits" else dim, info, job)
        for name, head in job.objective.heads.items()
        if head.weight > 0
    }
    classifier = _build_classifier(job_data, encoder) if job.objective.classifier_weight > 0 else None
    return ContrastiveModel(encoder, Objective(heads, classifier, label_logits(encoder)))


def _build_classifier(job_data: JobData, encoder: nn.Module) -> Classifier:
    config, distance_CC = job_data.job.objective.classifier, None
    if config.loss == "guided":
        levels = class_parents(job_data.dataset, config.labels)
        leaves = torch.arange(job_data.space.n_classes)
        distance_CC = tree_distances(torch.stack([*levels.values(), leaves], dim=1))
    layer = classifier_layer(job_data.job, encoder, job_data.space, distance_CC)
    prototypes = (part for part in layer.modules() if isinstance(part, PrototypeClassifier))
    regulariser = next((part.regulariser for part in prototypes), None)
    weights = target_weight(config, job_data.targets(job_data.train), job_data.space.n_classes)
    weight = job_data.job.objective.classifier_weight
    return Classifier(layer, weight, classifier_loss(config, weights), config.reduction, regulariser)


def classifier_layer(
    job: JobConfig, encoder: nn.Module, space: LabelSpace, class_distance_CC: Tensor | None
) -> nn.Module:
    """Builds the layer from an encoder's output (R, O) to logits; it adds the encoder's own logits, if any.

    For a label-wise encoder it returns the encoder's own logits alone. `class_distance_CC` has the distances
    between classes in their tree, which the loss `guided` needs.
    """
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


def _build_head(config: HeadConfig, dim: int, info: DatasetInfo, job: JobConfig) -> Head:
    section, reads_logits = config.projection, config.projection.kind == "logits"
    kind = "identity" if section.kind == "logits" else section.kind
    projection = Projection(
        kind, dim, dim=section.dim, hidden=section.hidden, normalize_input=section.normalize_input
    )
    prototypes = None
    if LOSSES[config.loss].prototypes and config.labels is not None:
        prototypes = (info.space(config.labels).n_classes, projection.dim)
    loss = build_loss(
        config.loss,
        temperature=_build_temperature(config),
        reduction=config.reduction,
        normalize=config.unit_length,
        gather=True,
        products=job.train.products,
        prototypes=prototypes,
        queue=config.queue,
        **config.options,
    )
    # Heads with nn.Identity compare the same pairs, and can share one softmax, see `Head.sharing`.
    is_identity = kind == "identity" and not section.normalize_input
    return Head(nn.Identity() if is_identity else projection, loss, config.weight, reads_logits=reads_logits)


def _build_temperature(config: HeadConfig) -> Temperature:
    temperature = config.temperature
    if isinstance(temperature, TemperatureSchedule):
        return ScheduledTemperature(temperature.start, temperature.end, temperature.schedule)
    if isinstance(temperature, LearnedTemperatureConfig):
        return LearnedTemperature(temperature.learned)
    return ConstantTemperature(temperature)


def build_loop(
    job_data: JobData,
    model: ContrastiveModel,
    context: Context,
    callbacks: Callbacks,
    checkpoint: Path | None = None,
) -> Loop:
    """Builds the loop of a job. Raises UserError as `build_sampler`, or for a too small micro-batch."""
    job, train = job_data.job, job_data.job.train
    check_micro_batch(train.micro_batch_size, model.encoder)
    # PyTorch's convolutions compute in the memory format of the weights, not in that of the images.
    format_ = torch.channels_last if train.channels_last else memory_format(context.device)
    model.encoder.to(memory_format=format_)
    rows = job_data.encode(job_data.train).copy_to_gpu(context.device)
    minimum = least_samples(model.encoder) if job.views == 1 else 1
    return Loop(
        model=model,
        rows=replace(rows, compile=bool(train.compile)),
        sampler=build_sampler(job, job_data.train, context.rank, context.world_size, minimum),
        context=context,
        train=train,
        views=job.views,
        validate_every=job.evaluation.every,
        patience=_build_patience(job),
        callbacks=callbacks,
        checkpoint=checkpoint,
        identity={"job_hash": job_hash(job), "fingerprint": job_data.fingerprint},
    )


def _build_patience(job: JobConfig) -> Patience | None:
    validations, metric = job.train.patience, job.evaluation.metric
    if validations is None:
        return None
    if validations == "auto":
        validations = max(LEAST_PATIENCE, math.ceil(math.ceil(job.train.epochs / job.evaluation.every) / 4))
    return Patience(validations, metric, default_mode(metric.rpartition("/")[2]))
