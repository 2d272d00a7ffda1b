"""The evaluation of a trained encoder: classifier or linear probe, and nearest neighbours.

Probe, k, lambda and tau are chosen on validation; the test split is read once, afterwards. Each rank keeps
the embeddings of the training rows that it encoded. Those of validation and test are on all ranks, so all
ranks compute the same metrics.

Shapes: n training rows on this rank, M rows of another split, D embedding, O columns of the encoder's output
(D, or D + L).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mlcl.config import KnnConfig, ProbeConfig
from mlcl.config.job import KnnGrid
from mlcl.data import Split
from mlcl.evaluation import (
    Decision,
    Neighbours,
    PosthocResult,
    ProbeResult,
    Setting,
    Task,
    blend,
    choose,
    linear_probe,
    predict,
    search,
)
from mlcl.training.context import Context
from mlcl.training.embeddings import Datastore, RankRows, SplitEncoder, check_finite, setting_of
from mlcl.training.job_data import JobData
from mlcl.training.objective import ContrastiveModel
from mlcl.training.split_metrics import decision_metrics
from mlcl.training.transfer import Transfer, probe_grid, unseen_metrics

Predictor = Callable[[Tensor], Tensor]
"""Returns probabilities for outputs (M, O) of the encoder."""


@dataclass
class Evaluation:
    """The metrics of a run, and the embeddings and probabilities that they were computed from.

    Args:
        train: The embeddings (n, D) of this rank's training rows.
        metrics: The metrics by name.
        embeddings: The embeddings (M, D) of validation and test by split.
        probabilities: The probabilities of the classifier or the probe by split.
        probe: The linear probe, if there is one.
        decisions: The decisions by the prefix of the metrics that they were used for.
        notes: Messages to the user.
    """

    train: RankRows
    metrics: dict[str, float] = field(default_factory=dict)
    embeddings: dict[str, Tensor] = field(default_factory=dict)
    probabilities: dict[str, Tensor] = field(default_factory=dict)
    probe: ProbeResult | None = None
    decisions: dict[str, Decision] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Selection:
    """The predictors and kNN settings to evaluate, by the prefix of their metrics, as validation chose them.

    Args:
        models: The predictors. The probabilities of the one with the empty prefix are blended with
        neighbours. store: The training rows, if the job has neighbours. settings: The kNN settings.
    """

    models: dict[str, Predictor]
    store: Datastore | None = None
    settings: dict[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True)
class Queries:
    """A split to predict: the encoder's outputs (M, O), and their neighbours if there is a datastore."""

    split: Split
    output_MO: Tensor
    neighbours: Neighbours | None


class Evaluator:
    """Evaluates a model on the data of its job. Every rank must call the same methods.

    Args:
        job_data: The job with its data.
        model: Encoder and objective.
        context: Rank and device.
    """

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
        """Validates during training: the classifier, or in a two-phase job the neighbours."""
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
        """Evaluates after training.

        Args:
            test: Whether to evaluate on the test split.
            tell: Called with the name of each phase.

        Returns:
            The evaluation; its metrics are equal on all ranks.
        """
        tell("embedding")
        result = Evaluation(self._encoder.embeddings(self._train_rows))
        store = None if self._config.knn is None else self._job_data.datastore(result.train)
        validation = self._queries(self._validation, self._encoder.outputs(self._validation_rows), store)
        selection = self._select(result, validation, store, tell)
        for prefix, decision in result.decisions.items():
            result.metrics |= decision_metrics(prefix, decision)
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
                assert self._job_data.job.data.hold_out is not None
                seed = self._job_data.job.data.hold_out.seed
                result.metrics |= unseen_metrics(self._job_data.dataset, seed, self._encode)
        return result

    def _queries(self, split: Split, output_MO: Tensor, store: Datastore | None) -> Queries:
        """Looks up as many neighbours as the largest setting needs."""
        knn = self._config.knn
        if store is None or knn is None:
            return Queries(split, output_MO, None)
        k_max = max([knn.k, *(knn.grid.k if knn.grid is not None else ())])
        return Queries(split, output_MO, store.retrieve(output_MO, k_max))

    def _select(
        self, result: Evaluation, validation: Queries, store: Datastore | None, tell: Callable[[str], None]
    ) -> Selection:
        """Makes all choices on validation: probe, decisions and the best kNN setting."""
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
        """Finds the best (k, lambda, tau) of the grid on validation, and its decision."""
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
        """Returns the embeddings (M, D) of a split of any data set."""
        return self._embedding(self._encoder.outputs(self._job_data.unlabelled(split)))

    def _decide(self, probabilities: Tensor) -> Decision:
        """Chooses the decision for probabilities of the validation rows."""
        targets = self._job_data.targets(self._validation)
        return self._job_data.scoring.decide(self._job_data.task, probabilities, targets)

    def _notes(self, probabilities: Tensor) -> list[str]:
        """Returns a note if no label of validation reaches the job's threshold, or one half."""
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
    """Returns a layer's probabilities on the CPU. Raises Diverged for logits that are not finite."""
    logits: Tensor = layer(features.to(context.device)).float().cpu()
    check_finite(logits, "the classifier's logits", context)
    return logits.sigmoid() if task == "multi_label" else logits.softmax(-1)
