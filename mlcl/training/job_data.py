"""Opens the data of a job: data set, tokenizer, encoded splits, and bands and hierarchy of its labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlcl.config import JobConfig, default_mode, job_hash
from mlcl.data import (
    Dataset,
    ImageRows,
    LabelSpace,
    Split,
    Tokenizer,
    TokenRows,
    add_label_noise,
    check_class_parents,
    class_parents,
    hold_out,
    hugging_face_tokenizer,
    load_tokenizer,
    subset,
    train_word_tokenizer,
)
from mlcl.data.format import SPLITS
from mlcl.data.modifications import short_classes
from mlcl.data.validation_rows import redraw_validation
from mlcl.errors import UserError
from mlcl.evaluation import METRICS, LabelFacts, Neighbours, QueryRows, Scoring, Task, frequency_bands
from mlcl.evaluation.decision import Decision
from mlcl.evaluation.scores import metric_of
from mlcl.evaluation.tasks import as_label_sets, known_rows
from mlcl.labels import LabelRows
from mlcl.losses import LOSSES
from mlcl.models import ENCODERS, model_folder
from mlcl.models.encoder import TOKENIZERS
from mlcl.training.batches import Rows, build_sampler
from mlcl.training.checks import check_job, check_network
from mlcl.training.classifier import Labels
from mlcl.training.embeddings import Datastore, RankRows
from mlcl.training.features.inputs import FeatureRows, FrozenInputs
from mlcl.training.input_reader import CollatedRows, InputReader
from mlcl.training.objective import CLASSIFIER
from mlcl.training.split_metrics import SplitMetrics, facts_of, paths, targets_of
from mlcl.training.transfer import Transfer, open_reference

MOST_SHORT = 5
"""The largest number of classes with too few rows that a plan names."""


def open_dataset(job: JobConfig, home: Path, *, verify: bool, is_recorded: bool = False) -> Dataset:
    """Opens the job's data set with the validation rows that the job asks for, without held-out classes.

    For `verify` and `is_recorded` see `JobData.of`.
    """
    dataset = open_reference(job.data, home, verify=verify, is_recorded=is_recorded)
    config, seed = job.data.hold_out, job.data.validation_seed
    result = dataset if seed is None else redraw_validation(dataset, seed, home / "cache")
    return result if config is None else hold_out(result, config.labels, config.share, config.seed, dataset)


@dataclass(frozen=True)
class JobData:
    """A checked job with its data.

    `dataset` has no held-out classes, `task` is that of the classifier. `train` are the training rows after
    subset and label noise. `tokenizer` is None for an encoder that reads no tokens, `features` for an encoder
    without frozen inputs, `transfer` for a job without an evaluation on another data set. `cache` is the
    folder of cached data.

    Example:
        >>> job_data = JobData.of(load_job("job.yaml"), Path("outputs"))
    """

    job: JobConfig
    dataset: Dataset
    task: Task
    tokenizer: Tokenizer | None
    train: Split
    cache: Path
    features: FrozenInputs | None = None
    transfer: Transfer | None = None

    @classmethod
    def of(cls, job: JobConfig, home: Path, *, verify: bool = True, is_recorded: bool = False) -> JobData:
        """Opens and checks the data that a job names.

        `home` is the folder of prepared data, cache and results. With `verify` the SHA-256 of every shard is
        compared with the recorded one, and the encoder's pretrained network is checked. With `is_recorded`,
        for a job of a past run, prepared data are opened where the source's files are missing. Raises
        UserError if job and data do not fit together.
        """
        dataset = open_dataset(job, home, verify=verify, is_recorded=is_recorded)
        present_splits = [str(name) for name, rows in dataset.info.rows.items() if rows]
        for split in SPLITS:
            if split not in present_splits:
                raise UserError("the data set has no such split", file=dataset.place, found=split)
        task = check_job(job, dataset.info)
        check_class_parents(dataset)
        if verify and not is_recorded:
            check_network(job, dataset.info)
        train = dataset.split("train")
        subset_config, noise, labels = job.data.subset, job.data.label_noise, job.objective.classifier.labels
        if subset_config is not None:
            space, seed = subset_config.labels or labels, subset_config.seed
            train = subset(train, space, per_class=subset_config.per_class, n=subset_config.n, seed=seed)
        if noise is not None:
            train = add_label_noise(train, noise.labels or labels, noise.rate, noise.seed, dataset)
        build_sampler(job, train, 0, job.train.workers)
        transfer = Transfer.of(job, home, dataset.info, is_recorded=is_recorded)
        cache = home / "cache"
        features = FrozenInputs.of(job, train, cache) if job.baseline is None else None
        job_data = cls(job, dataset, task, _make_tokenizer(job, train), train, cache, features, transfer)
        _check_band(job_data)
        _check_targets(job_data)
        return job_data

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the data set's content."""
        return self.dataset.info.fingerprint

    @property
    def space(self) -> LabelSpace:
        """The label space that the classifier predicts."""
        return self.dataset.info.space(self.job.objective.classifier.labels)

    def encode(self, split: Split) -> Rows:
        """Encodes a split, with the labels that each head and the classifier learn from."""
        labels: dict[str, Labels] = {}
        for name, head in self.job.objective.heads.items():
            if head.labels is not None and head.weight > 0:
                head_labels = split.labels(head.labels)
                if isinstance(head_labels, LabelRows):
                    head_labels = head_labels.without_unknown()
                elif LOSSES[head.loss].labels == "multi_label":
                    head_labels = LabelRows.from_classes(
                        head_labels, self.dataset.info.space(head.labels).n_classes
                    )
                labels[name] = head_labels
        labels[CLASSIFIER] = self.targets(split)
        return Rows(self._read_inputs(split), labels, split.rows, self.job.data.augment)

    def encode_unlabelled(self, split: Split) -> Rows:
        """Encodes a split of any data set of the same modality, without labels."""
        return Rows(self._read_inputs(split), {}, split.rows, self.job.data.augment)

    def targets(self, split: Split) -> Labels:
        """Returns a split's targets for the classifier; for aspects, classes (N, A) with -1 for unknown."""
        return targets_of(split, self.job.objective.classifier.labels, self.task)

    def decide(self, probabilities: Tensor) -> Decision:
        """Chooses the rule for which labels are predicted, by the `probabilities` of the validation rows."""
        return self.scoring.decide(self.task, probabilities, self.targets(self.dataset.split("validation")))

    def queries(self, split: Split, neighbours: Neighbours, model: Tensor) -> QueryRows:
        """Returns a split's rows for `search`, with their neighbours and the model's probabilities."""
        return QueryRows(neighbours, self.targets(split), model, self.facts_of(split))

    def datastore(self, train: RankRows) -> Datastore:
        """Returns the training rows as a datastore; `train` has their embeddings."""
        return Datastore(train, self.targets(self.train), self.task, self.space.n_classes)

    def metrics(self) -> SplitMetrics:
        """Returns the object that computes the metrics of the classifier's label space."""
        labels, groups = self.job.objective.classifier.labels, self.job.evaluation.metrics
        levels = class_parents(self.dataset, labels)
        return SplitMetrics(self.task, labels, self.space.aspects, levels, groups, self.facts)

    @cached_property
    def facts(self) -> LabelFacts:
        """The frequency bands of the classifier's labels in the training rows, and the labels' hierarchy."""
        path_LH = paths(self.dataset, self.job.objective.classifier.labels)
        sets = as_label_sets(self.targets(self.train), self.space.n_classes)
        shape = (len(self.space.aspects), -1) if self.task == "aspects" else -1
        counts = torch.bincount(sets.columns, minlength=sets.width).reshape(shape)
        band = frequency_bands(counts.numpy(), self.job.evaluation.bands)
        return LabelFacts(band, None if path_LH is None else path_LH.numpy())

    def facts_of(self, split: Split) -> LabelFacts:
        """Returns `facts` with `row_path`, each row's class at each level of a hierarchy, if any."""
        return facts_of(self.facts, split, self.job.objective.classifier.labels)

    @property
    def scoring(self) -> Scoring:
        """The job's metric, with the settings by which it is computed on validation."""
        evaluation = self.job.evaluation
        metric = evaluation.metric.rpartition("/")[2]
        mode, aspects = default_mode(metric), self.space.aspects
        return Scoring(metric, mode, evaluation.threshold, aspects, evaluation.at_least_one)

    def _read_inputs(self, split: Split) -> TokenRows | ImageRows | FeatureRows | CollatedRows:
        if self.features is not None:
            return self.features.rows(split)
        return InputReader.of(self.job, self.tokenizer).split(split, self.cache)


def _make_tokenizer(job: JobConfig, train: Split) -> Tokenizer | None:
    encoder, section = ENCODERS[job.encoder.name], job.encoder
    if encoder.tokenizer is None or job.baseline is not None:
        return None
    origin: Any = getattr(section, TOKENIZERS[encoder.tokenizer])
    if encoder.tokenizer == "words":
        # The vocabulary is learned, too, so it comes from the training rows alone.
        return load_tokenizer(train_word_tokenizer(train.texts(), origin).to_str())
    if encoder.tokenizer == "file":
        tokenizer = load_tokenizer(Path(origin).read_text(encoding="utf-8"))
    else:
        tokenizer = hugging_face_tokenizer(str(model_folder(origin)))
    minimum, size = tokenizer.num_special_tokens_to_add(is_pair=False) + 1, encoder.size(section)
    if size < minimum:  # the library would not truncate texts at all
        problem, key = "no room for a word beside the model's special tokens", "encoder.max_length"
        raise UserError(problem, key=key, found=size, allowed=f"{minimum} or more")
    return tokenizer


def _check_targets(job_data: JobData) -> None:
    labels, dataset = job_data.job.objective.classifier.labels, job_data.dataset
    targets = job_data.targets(dataset.split("validation"))
    for name, split_targets in (("training", job_data.targets(job_data.train)), ("validation", targets)):
        if not known_rows(job_data.task, split_targets).any():
            problem, key = f"no {name} row has a label of it", "objective.classifier.labels"
            raise UserError(problem, file=dataset.place, key=key, found=labels)
    metric = job_data.scoring.metric
    if job_data.task == "aspects" and metric not in METRICS and job_data.job.baseline is None:
        assert isinstance(targets, Tensor)
        _, aspect = metric_of(metric, job_data.task, job_data.space.aspects, targets.shape[1])
        if aspect is not None and not (targets[:, aspect] >= 0).any():
            problem, actual = "no validation row has a rating of this aspect", job_data.job.evaluation.metric
            raise UserError(problem, file=dataset.place, key="evaluation.metric", found=actual)


def _check_band(job_data: JobData) -> None:
    evaluation = job_data.job.evaluation
    metric = evaluation.metric.rpartition("/")[2]
    if metric not in METRICS or METRICS[metric].group != "bands":
        return
    targets = job_data.targets(job_data.dataset.split("validation"))
    labels = as_label_sets(targets, job_data.space.n_classes).columns
    if not job_data.facts.in_band(metric.partition("_")[0]).flatten()[labels].any():
        problem = f"no validation row has a label in this band: evaluation.bands is {list(evaluation.bands)}"
        raise UserError(problem, key="evaluation.metric", found=evaluation.metric)


def _describe_short_classes(job_data: JobData) -> list[str]:
    """Returns texts for the first classes with fewer rows than the job asks for, and one for the rest."""
    subset_config = job_data.job.data.subset
    if subset_config is None or subset_config.per_class is None:
        return []
    space = subset_config.labels or job_data.job.objective.classifier.labels
    texts = short_classes(job_data.train, space, subset_config.per_class)
    rest_texts = [f"and {len(texts) - MOST_SHORT} more"] if len(texts) > MOST_SHORT else []
    return [*texts[:MOST_SHORT], *rest_texts]


def job_plan(job_data: JobData) -> dict[str, Any]:
    """Returns data, task and steps of a job as plain data."""
    job, info = job_data.job, job_data.dataset.info
    short = _describe_short_classes(job_data)
    sampler = build_sampler(job, job_data.train, 0, job.train.workers)
    return {
        "experiment": job.experiment,
        "job_hash": job_hash(job),
        "data": {
            "name": info.name,
            "fingerprint": job_data.fingerprint,
            "train": len(job_data.train),
            "validation": len(job_data.dataset.split("validation")),
            **({"short_classes": short} if short else {}),
        },
        "task": job_data.task,
        "training": {
            "epochs": job.train.epochs,
            "steps_per_epoch": sampler.steps_per_epoch,
            "steps": job.train.epochs * sampler.steps_per_epoch,
            "rows_per_step": min(job.train.batch_size, len(job_data.train)) * job.views,
            "workers": job.train.workers,
        },
    }
