"""Evaluates a trained encoder: its classifier or a linear probe, and its nearest neighbours.

The probe is a layer on the embedding. In two phases it is the encoder's own layer on label vectors, if the
encoder has such a layer.

The probe, the thresholds and the settings of the neighbours (k, lambda, temperature) are chosen on
validation; the test split is read once, afterwards. Each rank keeps the embeddings of the training rows that
it encoded. The embeddings of validation and test are on all ranks, so all ranks compute the same metrics.

Shapes: n training rows on this rank, M rows of another split, D embedding, O columns of the encoder's output
(D, or D + L).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace

import torch
from torch import Tensor, nn

from mlcl.config import KnnConfig
from mlcl.data import Split
from mlcl.evaluation import (
    Decision,
    Ensemble,
    Features,
    Neighbours,
    ProbeResult,
    ProbeRows,
    Setting,
    Task,
    blend,
    choose,
    linear_probe,
    predict,
    search,
)
from mlcl.evaluation.tasks import Array
from mlcl.models import WithOwnLogits
from mlcl.training.baseline_fits import ENSEMBLE, baseline_result, ensemble_metrics, member_data, weigh
from mlcl.training.batches import Rows
from mlcl.training.context import Context
from mlcl.training.embeddings import (
    Datastore,
    LabelVectors,
    RankRows,
    SplitEncoder,
    check_finite,
    label_layer,
    setting_of,
)
from mlcl.training.job_data import JobData
from mlcl.training.neighbour_grid import AXES
from mlcl.training.objective import ContrastiveModel
from mlcl.training.split_metrics import decision_metrics
from mlcl.training.transfer import probe_grid, unseen_metrics

Predictor = Callable[[Tensor], Tensor]
"""A function that returns probabilities for outputs (M, O) of the encoder."""


@dataclass
class Evaluation:
    """The metrics of a run, and the embeddings and probabilities that they were computed from.

    `train` has the embeddings (n, D) of this rank's training rows. `embeddings` (M, D) and `probabilities`
    are those of validation and test, keyed by split; the probabilities are the ensemble's, else the
    classifier's, else the probe's. `decisions` say which labels each predictor predicts, and `tested` has its
    probabilities of the test rows; both are keyed by the prefix of its metrics: "", `probe/`, `ensemble/`,
    `knn/` or `knn_best/`. `probe` is None if no probe was trained. `grid` is the table of `search`, None if
    the neighbours' settings were not searched. `notes` are messages to the user.
    """

    train: RankRows
    metrics: dict[str, float] = field(default_factory=dict)
    embeddings: dict[str, Tensor] = field(default_factory=dict)
    probabilities: dict[str, Tensor] = field(default_factory=dict)
    probe: ProbeResult | None = None
    decisions: dict[str, Decision] = field(default_factory=dict)
    tested: dict[str, Tensor] = field(default_factory=dict)
    grid: Array | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Selection:
    """The predictors and the settings of the neighbours that were selected on validation.

    `models` and `settings` are keyed by the prefix of their metrics. The neighbours' votes are blended with
    the predictor whose prefix is the empty string or, if `ensemble` is not None, with the ensemble of this
    predictor and a baseline. `member` has the baseline's probabilities, keyed by split.
    """

    models: dict[str, Predictor]
    settings: dict[str, Setting] = field(default_factory=dict)
    ensemble: Ensemble | None = None
    member: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Queries:
    """A split to evaluate: the encoder's outputs (M, O), and their nearest training rows.

    `neighbours` is None if the job does not evaluate neighbours.
    """

    split: Split
    output_MO: Tensor
    neighbours: Neighbours | None


class Evaluator:
    """Evaluates a model on the data of its job. Every rank must call the same methods."""

    def __init__(self, job_data: JobData, model: ContrastiveModel, context: Context) -> None:
        self._job_data, self._model, self._context = job_data, model, context
        self._config, self._embedding = job_data.job.evaluation, model.objective.embedding
        self._validation = job_data.dataset.split("validation")
        self._validation_rows = job_data.encode(self._validation)
        self._train_rows = job_data.encode(job_data.train)
        self._metrics = job_data.metrics()
        precision = job_data.job.train.precision
        self._encoder = SplitEncoder(model.encoder, self._config.batch_size, precision, context)
        classifier = model.objective.classifier
        self._layer: nn.Module | None = None if classifier is None else classifier.linear

    def quick(self) -> dict[str, float]:
        """Returns validation metrics of the classifier, and of the neighbours if the job's metric is theirs.

        Without a classifier they are those of the neighbours alone. The job's metric, if there, is the first.
        """
        val_MO = self._encoder.outputs(self._validation_rows)
        metrics: dict[str, float] = {}
        model = None if self._model.objective.classifier is None else self._classify(val_MO)
        if model is not None:
            metrics |= self._metrics("val", model, self._validation, self._job_data.decide(model))
        if model is None or self._config.metric.startswith("knn/"):
            setting = setting_of(self._config.knn or KnnConfig())
            store = self._job_data.datastore(self._encoder.embeddings(self._train_rows))
            neighbours = store.retrieve(val_MO, setting.k)
            probabilities = store.votes(neighbours, setting)
            if model is not None:
                probabilities = blend(probabilities, model, setting.lambda_)
            metrics |= self._metrics(
                "knn/val", probabilities, self._validation, self._job_data.decide(probabilities)
            )
        return {name: metrics[name] for name in sorted(metrics, key=lambda name: name != self._config.metric)}

    def evaluate_final(
        self, *, test: bool, tell: Callable[[str], None], check_stop: Callable[[], None] = lambda: None
    ) -> Evaluation:
        """Evaluates the trained model on validation, and on the test split if `test`.

        The metrics are equal on all ranks. In two phases, if the encoder has a label layer, that layer is
        trained. The job's ensemble is evaluated if `test`, or if the job has a grid of neighbours; other
        search trials are scored by the classifier alone. `tell` is called with the name of each phase as it
        begins. `check_stop` is called while a baseline is fitted, and raises an exception if a stop was
        requested.
        """
        tell("embedding")
        job_data = self._job_data
        result = Evaluation(self._encoder.embeddings(self._train_rows))
        if self._layer is None and (layer := label_layer(self._model.encoder)) is not None:
            tell("linear probe")
            self._layer = self._train_label_layer(result, layer)
        store = None if self._config.knn is None else job_data.datastore(result.train)
        validation = self._encode_queries(self._validation, self._validation_rows, store)
        member: Mapping[str, Tensor] = {}
        if self._config.ensemble is not None and (test or (self._config.knn and self._config.knn.grid)):
            tell("baseline")
            device, baseline_data = self._context.device.type, member_data(job_data)
            member = baseline_result(baseline_data, device, test=test, check_stop=check_stop).probabilities
        selection = self._select(result, validation, store, tell, member)
        for prefix, decision in result.decisions.items():
            result.metrics |= decision_metrics(prefix, decision)
        self._measure(result, selection, "val", validation, store)
        if not test:
            return result
        tell("test")
        split = job_data.dataset.split("test")
        self._measure(
            result, selection, "test", self._encode_queries(split, job_data.encode(split), store), store
        )
        if job_data.transfer is not None:
            tell("transfer")
            result.metrics |= job_data.transfer.measure(
                lambda split: self._encoder.embeddings(job_data.encode_unlabelled(split)), self._encode
            )
        if job_data.job.data.hold_out is not None:
            tell("unseen classes")
            seed = job_data.job.data.hold_out.seed
            result.metrics |= unseen_metrics(job_data.dataset, seed, self._encode)
        return result

    def _encode_queries(self, split: Split, rows: Rows, store: Datastore | None) -> Queries:
        """Encodes a split, and retrieves the neighbours from `store`, as many as the largest k of the job."""
        output_MO, knn = self._encoder.outputs(rows), self._config.knn
        if store is None or knn is None:
            return Queries(split, output_MO, None)
        k_max = max([knn.k, *(knn.grid.k if knn.grid is not None else ())])
        return Queries(split, output_MO, store.retrieve(output_MO, k_max))

    def _select(
        self,
        result: Evaluation,
        validation: Queries,
        store: Datastore | None,
        tell: Callable[[str], None],
        member: Mapping[str, Tensor],
    ) -> Selection:
        """Chooses probe, thresholds, ensemble and neighbour setting on validation; adds them to `result`."""
        models: dict[str, Predictor] = {}
        two_phases = self._model.objective.classifier is None
        if self._layer is not None:
            models[""] = self._classify
        if self._layer is None or (self._config.probe is not None and not two_phases):
            tell("linear probe")
            val_MD = self._embedding(validation.output_MO)
            probe = result.probe = self._fit_probe(self._probe_rows(result), val_MD)
            models["" if two_phases else "probe/"] = lambda output: predict(probe, self._embedding(output))
        probabilities = {prefix: model(validation.output_MO) for prefix, model in models.items()}
        result.decisions |= {prefix: self._job_data.decide(p) for prefix, p in probabilities.items()}
        result.notes += self._threshold_notes(probabilities[""])
        selection, prediction = Selection(models), probabilities[""]
        if member:
            ensemble = weigh(self._job_data, prediction, member["validation"])
            selection = replace(selection, ensemble=ensemble, member=member)
            prediction = ensemble(self._job_data.task, prediction, member["validation"])
            result.metrics |= ensemble_metrics(ensemble)
            result.decisions[ENSEMBLE] = self._job_data.decide(prediction)
        knn, neighbours = self._config.knn, validation.neighbours
        if knn is None or store is None or neighbours is None:
            return selection
        tell("neighbours")
        settings = selection.settings
        settings["knn/"] = setting_of(knn)
        result.decisions["knn/"] = self._job_data.decide(
            store.blend(neighbours, prediction, settings["knn/"])
        )
        if knn.grid is not None:
            search_result = search(
                self._job_data.queries(self._validation, neighbours, prediction),
                store.labels,
                task=store.task,
                ks=knn.grid.k,
                lambdas=knn.grid.lambda_,
                temperatures=knn.grid.temperature,
                scoring=self._job_data.scoring,
            )
            result.grid = search_result.table
            settings["knn_best/"], result.decisions["knn_best/"] = search_result.best, search_result.decision
            best = dict(zip(AXES, astuple(search_result.best), strict=True))
            result.metrics |= {f"knn_best/{name}": value for name, value in best.items()}
        return selection

    def _measure(
        self, result: Evaluation, selection: Selection, name: str, queries: Queries, store: Datastore | None
    ) -> None:
        """Evaluates a split, and adds its metrics, embeddings and probabilities to the result."""
        split, neighbours = queries.split, queries.neighbours
        for prefix, model in selection.models.items():
            probabilities = model(queries.output_MO)
            result.metrics |= self._metrics(f"{prefix}{name}", probabilities, split, result.decisions[prefix])
            if not prefix:
                result.probabilities[split.name] = probabilities
            if name == "test":
                result.tested[prefix] = probabilities
        if selection.ensemble is not None:
            prediction, member = result.probabilities[split.name], selection.member[split.name]
            prediction = result.probabilities[split.name] = selection.ensemble(
                self._job_data.task, prediction, member
            )
            result.metrics |= self._metrics(
                f"{ENSEMBLE}{name}", prediction, split, result.decisions[ENSEMBLE]
            )
            if name == "test":
                result.tested[ENSEMBLE] = prediction
        embeddings = result.embeddings[split.name] = self._embedding(queries.output_MO)
        result.metrics |= self._metrics.of_embeddings(name, embeddings, split)
        if store is None or neighbours is None:
            return
        for prefix, setting in selection.settings.items():
            blended = store.blend(neighbours, result.probabilities[split.name], setting)
            overlap = store.overlap(neighbours, self._job_data.targets(split), setting.k)
            decision = result.decisions[prefix]
            result.metrics |= self._metrics(f"{prefix}{name}", blended, split, decision, overlap)
            if name == "test":
                result.tested[prefix] = blended

    def _train_label_layer(self, result: Evaluation, layer: nn.Linear) -> nn.Module:
        """Trains the encoder's label layer as a probe; returns a module that selects its logits."""
        train_vectors = LabelVectors(self._encoder, self._train_rows, result.train.numbers)
        val_vectors = LabelVectors(self._encoder, self._validation_rows, range(len(self._validation)))
        probe = self._fit_probe(replace(self._probe_rows(result), features=train_vectors), val_vectors)
        layer.load_state_dict({"weight": probe.weight, "bias": probe.bias})
        return WithOwnLogits(int(self._model.encoder.dim))  # type: ignore[arg-type]

    def _probe_rows(self, result: Evaluation) -> ProbeRows:
        return result.train.for_probe(self._job_data.targets(self._job_data.train))

    def _fit_probe(self, train: ProbeRows, val_features: Features) -> ProbeResult:
        job_data = self._job_data
        return linear_probe(
            train,
            val_features,
            job_data.targets(self._validation),
            task=job_data.task,
            n_classes=job_data.space.n_classes,
            grid=probe_grid(job_data.job),
            scoring=job_data.scoring,
            val_facts=job_data.facts_of(self._validation),
        )

    def _encode(self, split: Split) -> Tensor:
        """Returns the embeddings (M, D) of a split of any data set."""
        return self._embedding(self._encoder.outputs(self._job_data.encode_unlabelled(split)))

    def _threshold_notes(self, probabilities: Tensor) -> list[str]:
        """Returns a note if no validation probability reaches the job's threshold, by default one half."""
        threshold = self._config.threshold
        if threshold == "top_k" or self._config.at_least_one:  # then each row has a label
            return []
        limit = threshold if isinstance(threshold, float) else 0.5
        if self._job_data.task != "multi_label" or bool((probabilities >= limit).any()):
            return []
        targets = self._job_data.targets(self._validation)
        best = choose(probabilities, targets, "global", self._job_data.scoring.metric).thresholds[0]
        return [f"0 labels predicted at {limit:g}; the best threshold on validation is {best:.2g}"]

    def _classify(self, output_MO: Tensor) -> Tensor:
        assert self._layer is not None
        return classify(self._layer, output_MO, self._job_data.task, self._context)


@torch.no_grad()
def classify(layer: nn.Module, features: Tensor, task: Task, context: Context) -> Tensor:
    """Returns a layer's probabilities for `features`, on the CPU. Raises Diverged for non-finite logits."""
    logits: Tensor = layer(features.to(context.device)).float().cpu()
    check_finite(logits, "the classifier's logits", context)
    return logits.sigmoid() if task == "multi_label" else logits.softmax(-1)
