"""The evaluation of a trained encoder: classifier or linear probe, and nearest neighbours.

Selection (probe, k, lambda, tau) sees validation alone; the test split is read once, after it. Each rank
keeps the embeddings of the training rows that it encoded; those of validation and test are on all ranks, and
so every rank computes the same figures.

Shapes: N training rows, n of them on this rank, M rows of another split, D embedding, O columns of the
encoder's output (D, or D + L).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mlcl.config import KnnConfig, ProbeConfig
from mlcl.config.job import KnnGrid
from mlcl.data import Split
from mlcl.evaluation import (
    Decision,
    Neighbours,
    PosthocResult,
    Task,
    blend,
    choose,
    linear_probe,
    predict,
    search,
)
from mlcl.training.context import Context
from mlcl.training.embeddings import SplitEncoder, check_finite
from mlcl.training.evaluation_result import Evaluation, Predictor, Queries, Selection
from mlcl.training.job_data import JobData
from mlcl.training.neighbours import Datastore, setting_of
from mlcl.training.objective import ContrastiveModel
from mlcl.training.split_metrics import decision_figures
from mlcl.training.transfer import Transfer, probe_grid
from mlcl.training.unseen import unseen_metrics


class Evaluator:
    """Evaluates one model on one job's data; every rank calls the same methods."""

    def __init__(self, job_data: JobData, model: ContrastiveModel, context: Context) -> None:
        self._job_data, self._model, self._context = job_data, model, context
        self._config = job_data.job.evaluation
        self._validation = job_data.dataset.split("validation")
        self._validation_rows = job_data.rows(self._validation)
        self._train_rows = job_data.rows(job_data.train)
        self._metrics = job_data.metrics()
        precision = job_data.job.train.precision
        self._encoder = SplitEncoder(model.encoder, self._config.batch_size, precision, context)

    def quick(self) -> dict[str, float]:
        """Validation during training: the classifier's; in two phases the neighbours' alone."""
        val_MO = self._encoder.outputs(self._validation_rows)
        metrics: dict[str, float] = {}
        model = None if self._model.objective.classifier is None else self._classify(val_MO)
        if model is not None:
            metrics |= self._metrics("val", model, self._validation, self._decide(model))
        if model is None or self._config.metric.startswith("knn/"):
            setting = setting_of(self._config.knn or KnnConfig())
            store = self._job_data.datastore(self._encoder.embeddings(self._train_rows))
            neighbours = store.retrieve(val_MO, setting.k)
            votes = store.votes(neighbours, setting)
            mixed = votes if model is None else blend(votes, model, setting.lambda_)
            metrics |= self._metrics("knn/val", mixed, self._validation, self._decide(mixed))
        return metrics

    def final(self, *, test: bool, tell: Callable[[str], None]) -> Evaluation:
        """All figures, the same on every rank."""
        tell("embedding")
        result = Evaluation(self._encoder.embeddings(self._train_rows))
        store = None if self._config.knn is None else self._job_data.datastore(result.train)
        validation = self._queries(self._validation, self._encoder.outputs(self._validation_rows), store)
        selection = self._select(result, validation, store, tell)
        for prefix, decision in result.decisions.items():
            result.metrics |= decision_figures(prefix, decision)
        self._measure(result, selection, "val", validation)
        if test:
            tell("test")
            split = self._job_data.dataset.split("test")
            queries = self._queries(split, self._encoder.outputs(self._job_data.rows(split)), store)
            self._measure(result, selection, "test", queries)
            if self._job_data.transfer is not None:
                tell("transfer")
                result.metrics |= self._transfer(self._job_data.transfer)
            if self._job_data.dataset.info.held_out is not None:
                tell("unseen classes")
                result.metrics |= unseen_metrics(self._job_data, self._encode)
        return result

    def _queries(self, split: Split, output_MO: Tensor, store: Datastore | None) -> Queries:
        """The neighbours are looked up once, as many as any setting asks for."""
        knn = self._config.knn
        if store is None or knn is None:
            return Queries(split, output_MO, None)
        k_max = max([knn.k, *(knn.grid.k if knn.grid is not None else ())])
        return Queries(split, output_MO, store.retrieve(output_MO, k_max))

    def _select(
        self, result: Evaluation, validation: Queries, store: Datastore | None, tell: Callable[[str], None]
    ) -> Selection:
        """Everything that validation decides."""
        models: dict[str, Predictor] = {}
        joint = self._model.objective.classifier is not None
        if joint:
            models[""] = self._classify
        if not joint or self._config.probe is not None:
            tell("linear probe")
            models["probe/" if joint else ""] = self._probe(result, validation)
        probabilities = {prefix: model(validation.output_MO) for prefix, model in models.items()}
        result.decisions |= {prefix: self._decide(p) for prefix, p in probabilities.items()}
        result.notes += self._notes(probabilities[""])
        if self._config.knn is None or store is None or validation.neighbours is None:
            return Selection(models)
        tell("neighbours")
        own = setting_of(self._config.knn)
        settings = {"knn/": own}
        result.decisions["knn/"] = self._decide(store.blended(validation.neighbours, probabilities[""], own))
        if self._config.knn.grid is not None:
            found = self._search(self._config.knn.grid, store, validation.neighbours, probabilities[""])
            best = settings["knn_best/"] = found.best
            result.decisions["knn_best/"] = found.decision
            result.metrics |= {
                "knn_best/k": best.k,
                "knn_best/lambda": best.lambda_,
                "knn_best/temperature": best.temperature,
            }
        return Selection(models, store, settings)

    def _measure(self, result: Evaluation, selection: Selection, name: str, queries: Queries) -> None:
        """Adds the metrics of a split, its embeddings and its probabilities to the result."""
        split = queries.split
        for prefix, model in selection.models.items():
            probabilities = model(queries.output_MO)
            result.metrics |= self._metrics(f"{prefix}{name}", probabilities, split, result.decisions[prefix])
            if not prefix:
                result.probabilities[split.name] = probabilities
        embeddings = result.embeddings[split.name] = self._embedding(queries.output_MO)
        result.metrics |= self._metrics.of_embeddings(name, embeddings, split)
        store, neighbours = selection.store, queries.neighbours
        if store is None or neighbours is None:
            return
        for prefix, setting in selection.settings.items():
            blended = store.blended(neighbours, result.probabilities[split.name], setting)
            overlap = store.overlap(neighbours, self._job_data.targets(split), setting.k)
            decision = result.decisions[prefix]
            result.metrics |= self._metrics(f"{prefix}{name}", blended, split, decision, overlap)

    def _search(
        self, grid: KnnGrid, store: Datastore, neighbours: Neighbours, model: Tensor
    ) -> PosthocResult:
        """The best (k, lambda, tau) of the grid on validation, and its decision."""
        return search(
            self._job_data.queries(self._validation, neighbours, model),
            store.labels,
            task=store.task,
            ks=grid.k,
            lambdas=grid.lambda_,
            temperatures=grid.temperature,
            scoring=self._job_data.scoring,
        )

    def _probe(self, result: Evaluation, validation: Queries) -> Predictor:
        config = self._config.probe or ProbeConfig()
        probe = linear_probe(
            result.train.for_probe(self._job_data.targets(self._job_data.train)),
            self._embedding(validation.output_MO),
            self._job_data.targets(self._validation),
            task=self._job_data.task,
            n_classes=self._job_data.space.n_classes,
            grid=probe_grid(config, self._job_data.job.train.seed),
            scoring=self._job_data.scoring,
            val_facts=self._job_data.facts_of(self._validation),
        )
        result.probe = probe
        return lambda output_MO: predict(probe, self._embedding(output_MO))

    def _transfer(self, transfer: Transfer) -> dict[str, float]:
        return transfer.measure(
            lambda split: self._encoder.embeddings(self._job_data.unlabelled(split)),
            self._encode,
            probe_grid(self._config.probe or ProbeConfig(), self._job_data.job.train.seed),
            self._config.threshold,
            self._config.at_least_one,
        )

    def _encode(self, split: Split) -> Tensor:
        """The embeddings (M, D) of any rows."""
        return self._embedding(self._encoder.outputs(self._job_data.unlabelled(split)))

    def _decide(self, probabilities: Tensor) -> Decision:
        """What validation chooses for its probabilities."""
        targets = self._job_data.targets(self._validation)
        return self._job_data.scoring.decide(self._job_data.task, probabilities, targets)

    def _notes(self, probabilities: Tensor) -> list[str]:
        """Says so where no label would be predicted on validation at the job's threshold, or at one half."""
        given = self._config.threshold
        limit = given if isinstance(given, float) else 0.5
        if self._job_data.task != "multi_label" or bool((probabilities >= limit).any()):
            return []
        targets = self._job_data.targets(self._validation)
        best = choose(probabilities, targets, "global", self._job_data.scoring.metric).thresholds[0]
        return [f"0 labels predicted at {limit:g}; the best threshold on validation is {best:.2g}"]

    def _classify(self, output_MO: Tensor) -> Tensor:
        classifier = self._model.objective.classifier
        assert classifier is not None
        return classify(classifier.linear, output_MO, self._job_data.task, self._context)

    def _embedding(self, output_MO: Tensor) -> Tensor:
        return self._model.objective.embedding(output_MO)


@torch.no_grad()
def classify(layer: nn.Module, features: Tensor, task: Task, context: Context) -> Tensor:
    """A layer's probabilities, on the CPU. Raises Diverged for logits that are not finite."""
    logits: Tensor = layer(features.to(context.device)).float().cpu()
    check_finite(logits, "the classifier's logits", context)
    return logits.sigmoid() if task == "multi_label" else logits.softmax(-1)
