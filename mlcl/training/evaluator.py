"""What a trained encoder is worth: classifier or linear probe, and nearest neighbours.

Selection (probe, k, lambda, tau) sees validation alone; the test split is read once, after it.
Shapes: N training rows, M rows of another split, D embedding, O the encoder's output (D, or D + L).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mlcl.config import KnnConfig, ProbeConfig
from mlcl.config.space import default_mode
from mlcl.data import LabelSpace, Split
from mlcl.evaluation import ProbeResult, Setting, Task, blend, evaluate, linear_probe, predict, search
from mlcl.training.batches import Rows
from mlcl.training.context import Context
from mlcl.training.embeddings import embed
from mlcl.training.events import Diverged
from mlcl.training.hierarchy import coarse_accuracy, parents
from mlcl.training.job_data import JobData
from mlcl.training.neighbours import Datastore, Predictor, setting_of
from mlcl.training.objective import ContrastiveModel, Labels
from mlcl.training.transfer import Transfer


@dataclass
class Evaluation:
    """The figures of a run, and what they were computed from, by split: the encoder's outputs (N, O), the
    embeddings (N, D) in them, the classifier's or the probe's probabilities. And the probe, if any."""

    metrics: dict[str, float] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    embeddings: dict[str, Tensor] = field(default_factory=dict)
    probabilities: dict[str, Tensor] = field(default_factory=dict)
    probe: ProbeResult | None = None


class Evaluator:
    """Evaluates one model on one job's data."""

    def __init__(self, job_data: JobData, model: ContrastiveModel, context: Context) -> None:
        self._job_data, self._model, self._context = job_data, model, context
        self._config = job_data.job.evaluation
        self._metric = self._config.metric.rpartition("/")[2]
        self._validation = job_data.dataset.split("validation")
        self._validation_rows = job_data.rows(self._validation)
        self._train_rows = job_data.rows(job_data.train)
        self._store: Datastore | None = None
        self._settings: dict[str, Setting] = {}
        self._parents = parents(job_data.dataset, job_data.job.objective.classifier.labels)

    def quick(self) -> dict[str, float]:
        """Validation during training: the classifier's; in two phases the neighbours' alone."""
        val_MO = self._embed(self._validation_rows)
        joint = self._model.objective.classifier is not None
        metrics: dict[str, float] = {}
        model = self._classify(val_MO) if joint else None
        if model is not None:
            metrics |= self._metrics("val", model, self._validation)
        if model is None or self._config.metric.startswith("knn/"):
            setting = setting_of(self._config.knn or KnnConfig())
            store = self._datastore(self._embed(self._train_rows))
            votes = store.votes(store.retrieve(val_MO, setting.k), setting)
            mixed = votes if model is None else blend(votes, model, setting.lambda_)
            metrics |= self._metrics("knn/val", mixed, self._validation)
        return metrics

    def final(self, *, test: bool, tell: Callable[[str], None]) -> Evaluation | None:
        """All figures, on rank 0; None on the others, which only share in the encoding."""
        tell("embedding")
        outputs = {
            "train": self._embed(self._train_rows),
            "validation": self._embed(self._validation_rows),
        }
        assessment, predictors = Evaluation(outputs=outputs), dict[str, Predictor]()
        if self._context.is_main:
            predictors = self._select(assessment, tell)
        if test:
            tell("test")
            split = self._job_data.dataset.split("test")
            outputs["test"] = self._embed(self._job_data.rows(split))
            self._measure(assessment, predictors, "test", split)
            if self._job_data.transfer is not None:
                tell("transfer")
                assessment.metrics |= self._transfer(self._job_data.transfer)
        assessment.embeddings = {name: self._embedding(output) for name, output in outputs.items()}
        return assessment if self._context.is_main else None

    def _select(self, assessment: Evaluation, tell: Callable[[str], None]) -> dict[str, Predictor]:
        """Everything that validation decides: the predictors, by the prefix of their metrics."""
        predictors: dict[str, Predictor] = {}
        joint = self._model.objective.classifier is not None
        if joint:
            predictors[""] = self._classify
        if not joint or self._config.probe is not None:
            tell("linear probe")
            predictors["probe/" if joint else ""] = self._probe(assessment)
        if self._config.knn is not None:
            tell("neighbours")
            predictors |= self._neighbours(self._config.knn, assessment, predictors[""])
        self._measure(assessment, predictors, "val", self._validation)
        return predictors

    def _measure(
        self, assessment: Evaluation, predictors: dict[str, Predictor], name: str, split: Split
    ) -> None:
        for prefix, predictor in predictors.items():
            probabilities = predictor(assessment.outputs[split.name])
            assessment.metrics |= self._metrics(f"{prefix}{name}", probabilities, split)
            assessment.metrics |= self._overlap(prefix, name, assessment.outputs[split.name], split)
            if not prefix:
                assessment.probabilities[split.name] = probabilities

    def _neighbours(
        self, config: KnnConfig, assessment: Evaluation, model: Predictor
    ) -> dict[str, Predictor]:
        """The job's own (k, lambda, tau), and the best of the grid on validation, from one retrieval."""
        store = self._store = self._datastore(assessment.outputs["train"])
        self._settings["knn/"] = setting_of(config)
        predictors = {"knn/": store.predictor(model, setting_of(config))}
        if config.grid is not None:
            best = self._search(config, store, assessment.outputs["validation"], model)
            self._settings["knn_best/"] = best
            predictors["knn_best/"] = store.predictor(model, best)
            assessment.metrics |= {
                "knn_best/k": best.k,
                "knn_best/lambda": best.lambda_,
                "knn_best/temperature": best.temperature,
            }
        return predictors

    def _overlap(self, prefix: str, name: str, output_MO: Tensor, split: Split) -> dict[str, float]:
        """How many labels of the neighbours are the query's own (kNN-MLTC Table 6), where there are any."""
        if self._store is None or prefix not in self._settings or self._job_data.task != "multi_label":
            return {}
        share = self._store.overlap(output_MO, self._job_data.targets(split), self._settings[prefix].k)
        return {} if math.isnan(share) else {f"{prefix}{name}/neighbour_overlap": share}

    def _search(self, config: KnnConfig, store: Datastore, val_MO: Tensor, model: Predictor) -> Setting:
        grid = config.grid
        assert grid is not None
        return search(
            store.retrieve(val_MO, max(grid.k)),
            store.labels,
            self._validation_targets,
            model(val_MO),
            task=store.task,
            ks=grid.k,
            lambdas=grid.lambda_,
            temperatures=grid.temperature,
            metric=self._metric,
            mode=default_mode(self._metric),
            threshold=self._config.threshold,
            aspects=self._space.aspects,
        ).best

    def _probe(self, assessment: Evaluation) -> Predictor:
        config = self._config.probe or ProbeConfig()
        result = linear_probe(
            self._embedding(assessment.outputs["train"]),
            self._job_data.targets(self._job_data.train),
            self._embedding(assessment.outputs["validation"]),
            self._validation_targets,
            task=self._job_data.task,
            n_classes=self._space.n_classes,
            lrs=config.lr,
            weight_decays=config.weight_decay,
            epochs=config.epochs,
            batch_size=config.batch_size,
            seed=self._job_data.job.train.seed,
            metric=self._metric,
            mode=default_mode(self._metric),
            threshold=self._config.threshold,
            aspects=self._space.aspects,
        )
        assessment.probe = result
        return lambda output_MO: predict(result, self._embedding(output_MO))

    def _transfer(self, transfer: Transfer) -> dict[str, float]:
        return transfer.measure(
            lambda split: self._embedding(self._embed(self._job_data.unlabelled(split))),
            self._config.probe or ProbeConfig(),
            self._job_data.job.train.seed,
            self._config.threshold,
            self._context.is_main,
        )

    def _classify(self, output_MO: Tensor) -> Tensor:
        classifier = self._model.objective.classifier
        assert classifier is not None
        features = self._model.objective.divide(output_MO)[1]
        return classify(classifier.linear, features, self._job_data.task, self._context.device)

    def _metrics(self, prefix: str, probabilities: Tensor, split: Split) -> dict[str, float]:
        targets = self._job_data.targets(split)
        values = evaluate(
            self._job_data.task, probabilities, targets, self._config.threshold, self._space.aspects
        )
        values |= coarse_accuracy(probabilities, split, self._parents)
        return {f"{prefix}/{name}": value for name, value in values.items()}

    def _embedding(self, output_MO: Tensor) -> Tensor:
        return self._model.objective.divide(output_MO)[0]

    def _datastore(self, train_NO: Tensor) -> Datastore:
        targets = self._job_data.targets(self._job_data.train)
        return Datastore(self._embedding(train_NO), targets, self._job_data.task, self._space.n_classes)

    def _embed(self, rows: Rows) -> Tensor:
        precision = self._job_data.job.train.precision
        output = embed(self._model.encoder, rows, self._config.batch_size, precision, self._context)
        _check_finite(output, "the encoder's embeddings")
        return output

    @property
    def _space(self) -> LabelSpace:
        return self._job_data.dataset.info.space(self._job_data.job.objective.classifier.labels)

    @property
    def _validation_targets(self) -> Labels:
        return self._job_data.targets(self._validation)


@torch.no_grad()
def classify(layer: nn.Module, features: Tensor, task: Task, device: torch.device) -> Tensor:
    """A layer's probabilities, on the CPU. Raises Diverged for logits that are not finite."""
    logits: Tensor = layer(features.to(device)).float().cpu()
    _check_finite(logits, "the classifier's logits")
    return logits.sigmoid() if task == "multi_label" else logits.softmax(-1)


def _check_finite(values: Tensor, what: str) -> None:
    """Weights may be finite and still too large for what they are multiplied with."""
    if not bool(torch.isfinite(values).all()):
        raise Diverged(f"{what} are not finite")
