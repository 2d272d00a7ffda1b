"""What a trained encoder is worth: classifier or linear probe, and nearest neighbours.

Selection (probe, k, lambda, tau) sees validation alone; the test split is read once, after it.
Shapes: N datastore rows, M queries, D embedding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mlcl.config import KnnConfig, ProbeConfig
from mlcl.config.space import default_mode
from mlcl.evaluation import (
    Neighbours,
    ProbeResult,
    Setting,
    blend,
    evaluate,
    knn_probabilities,
    linear_probe,
    predict,
    retrieve,
    search,
)
from mlcl.training.context import Context
from mlcl.training.embed import embed
from mlcl.training.material import Material
from mlcl.training.objective import ContrastiveModel, Labels

QUICK_K = 5
"""Neighbours of the validation during two-phase training, where the job names none."""


@dataclass
class Assessment:
    """The final figures of a run, and what they were computed from."""

    metrics: dict[str, float]
    knn: Setting | None = None
    embeddings: dict[str, Tensor] = field(default_factory=dict)
    probabilities: dict[str, Tensor] = field(default_factory=dict)


class Assessor:
    """Evaluates one model on one job's data."""

    def __init__(self, material: Material, model: ContrastiveModel, context: Context) -> None:
        self._material = material
        self._model = model
        self._context = context
        self._job = material.job
        self._validation = material.dataset.split("validation")
        self._validation_rows = material.rows(self._validation)
        self._train_rows = material.rows(material.train)

    def quick(self) -> dict[str, float]:
        """Validation during training: the classifier's; in two phases the neighbours' alone."""
        val_MD = self._embed_validation()
        metrics: dict[str, float] = {}
        model_probabilities = None
        if self._model.objective.classifier is not None:
            model_probabilities = self._classify(val_MD)
            metrics |= self._metrics("val", model_probabilities, self._validation_targets)
        if model_probabilities is None or self._job.evaluation.metric.startswith("knn/"):
            train_ND = self._embed_train()
            config = self._job.evaluation.knn or KnnConfig(k=QUICK_K)
            neighbours = retrieve(train_ND, val_MD, config.k)
            votes = self._votes(neighbours, Setting(config.k, config.lambda_, config.temperature))
            mixed = (
                votes if model_probabilities is None else blend(votes, model_probabilities, config.lambda_)
            )
            metrics |= self._metrics("knn/val", mixed, self._validation_targets)
        return metrics

    def final(self, *, test: bool, tell: Callable[[str], None]) -> Assessment | None:
        """All figures, on rank 0; None on the others, which only share in the encoding."""
        tell("embedding")
        train_ND, val_MD = self._embed_train(), self._embed_validation()
        if self._context.is_main:
            assessment, predictors = self._select(train_ND, val_MD, tell)
        if test:
            tell("test")
            split = self._material.dataset.split("test")
            test_MD = self._embed(self._material.rows(split))
            if self._context.is_main:
                targets = self._material.targets(split)
                for prefix, predictor in predictors.items():
                    assessment.metrics |= self._metrics(f"{prefix}test", predictor(test_MD), targets)
                assessment.embeddings["test"] = test_MD
                assessment.probabilities["test"] = predictors[""](test_MD)
        return assessment if self._context.is_main else None

    def _select(
        self, train_ND: Tensor, val_MD: Tensor, tell: Callable[[str], None]
    ) -> tuple[Assessment, dict[str, Callable[[Tensor], Tensor]]]:
        """Everything that validation decides: figures so far, and the predictors that test will see."""
        targets = self._validation_targets
        predictors: dict[str, Callable[[Tensor], Tensor]] = {}
        joint = self._model.objective.classifier is not None
        if joint:
            predictors[""] = self._classify
        if not joint or self._job.evaluation.probe is not None:
            tell("linear probe")
            probe = self._probe(train_ND, val_MD)
            predictors["probe/" if joint else ""] = lambda x: predict(probe, x)
        metrics: dict[str, float] = {}
        for prefix, predictor in predictors.items():
            metrics |= self._metrics(f"{prefix}val", predictor(val_MD), targets)
        assessment = Assessment(metrics, embeddings={"train": train_ND, "validation": val_MD})
        assessment.probabilities["validation"] = predictors[""](val_MD)
        if self._job.evaluation.knn is not None:
            tell("neighbours")
            self._select_neighbours(self._job.evaluation.knn, train_ND, assessment, predictors)
        return assessment, predictors

    def _select_neighbours(
        self,
        config: KnnConfig,
        train_ND: Tensor,
        assessment: Assessment,
        predictors: dict[str, Callable[[Tensor], Tensor]],
    ) -> None:
        """The job's own (k, lambda, tau), and the best of the grid on validation, from one retrieval."""
        model, grid = predictors[""], config.grid
        largest = max(config.k, *(grid.k if grid else (1,)))
        neighbours = retrieve(train_ND, assessment.embeddings["validation"], largest)
        model_probabilities = assessment.probabilities["validation"]
        settings = {"knn/": Setting(config.k, config.lambda_, config.temperature)}
        if grid is not None:
            name = self._job.evaluation.metric.rpartition("/")[2]
            found = search(
                neighbours,
                self._material.targets(self._material.train),
                self._validation_targets,
                model_probabilities,
                task=self._material.task,
                ks=grid.k,
                lambdas=grid.lambda_,
                temperatures=grid.temperature,
                metric=name,
                mode=default_mode(name),
                threshold=self._job.evaluation.threshold,
            )
            settings["knn_best/"] = assessment.knn = found.best
            assessment.metrics |= {
                "knn_best/k": found.best.k,
                "knn_best/lambda": found.best.lambda_,
                "knn_best/temperature": found.best.temperature,
            }
        for prefix, setting in settings.items():
            mixed = blend(self._votes(neighbours, setting), model_probabilities, setting.lambda_)
            assessment.metrics |= self._metrics(f"{prefix}val", mixed, self._validation_targets)
            predictors[prefix] = self._neighbour_predictor(train_ND, model, setting)

    def _neighbour_predictor(
        self, train_ND: Tensor, model: Callable[[Tensor], Tensor], setting: Setting
    ) -> Callable[[Tensor], Tensor]:
        def predictor(queries_MD: Tensor) -> Tensor:
            votes = self._votes(retrieve(train_ND, queries_MD, setting.k), setting)
            return blend(votes, model(queries_MD), setting.lambda_)

        return predictor

    def _votes(self, neighbours: Neighbours, setting: Setting) -> Tensor:
        return knn_probabilities(
            neighbours,
            self._material.targets(self._material.train),
            task=self._material.task,
            k=setting.k,
            temperature=setting.temperature,
            n_classes=self._space.n_classes,
        )

    def _probe(self, train_ND: Tensor, val_MD: Tensor) -> ProbeResult:
        config = self._job.evaluation.probe or ProbeConfig()
        name = self._job.evaluation.metric.rpartition("/")[2]
        return linear_probe(
            train_ND,
            self._material.targets(self._material.train),
            val_MD,
            self._validation_targets,
            task=self._material.task,
            n_classes=self._space.n_classes,
            lrs=config.lr,
            weight_decays=config.weight_decay,
            epochs=config.epochs,
            batch_size=config.batch_size,
            seed=self._job.train.seed,
            metric=name,
            mode=default_mode(name),
        )

    @torch.no_grad()
    def _classify(self, embedding_MD: Tensor) -> Tensor:
        """The classifier's probabilities, on the CPU."""
        classifier = self._model.objective.classifier
        assert classifier is not None
        logits = classifier.linear(embedding_MD.to(self._context.device)).float().cpu()
        return logits.sigmoid() if self._material.task == "multi_label" else logits.softmax(-1)

    def _metrics(self, prefix: str, probabilities: Tensor, targets: Labels) -> dict[str, float]:
        values = evaluate(
            self._material.task,
            probabilities,
            targets,
            threshold=self._job.evaluation.threshold,
            aspects=self._space.aspects,
        )
        return {f"{prefix}/{name}": value for name, value in values.items()}

    @property
    def _space(self) -> Any:
        return self._material.dataset.info.space(self._job.objective.classifier.labels)

    @property
    def _validation_targets(self) -> Labels:
        return self._material.targets(self._validation)

    def _embed(self, rows: Any) -> Tensor:
        return embed(
            self._model.encoder,
            rows,
            self._job.evaluation.batch_size,
            self._job.train.precision,
            self._context,
        )

    def _embed_train(self) -> Tensor:
        return self._embed(self._train_rows)

    def _embed_validation(self) -> Tensor:
        return self._embed(self._validation_rows)
