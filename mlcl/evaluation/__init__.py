"""Evaluates encoders: metrics, nearest neighbours and their settings, linear probes and ensembles."""

from mlcl.evaluation.decision import Decision, Mode, choose
from mlcl.evaluation.embedded_rows import EmbeddedRows
from mlcl.evaluation.ensemble import Ensemble, choose_ensemble
from mlcl.evaluation.few_shot import FEW_SHOT_METRICS, FewShot
from mlcl.evaluation.knn import blend, knn_probabilities, neighbour_overlap
from mlcl.evaluation.knn_search import PosthocResult, QueryRows, Setting, search
from mlcl.evaluation.metric import METRICS, EmbeddingMetric, Metric
from mlcl.evaluation.predictions import ClassPrediction, Counts, LabelPrediction
from mlcl.evaluation.probe import ProbeResult, linear_probe, predict
from mlcl.evaluation.probe_training import Features, ProbeGrid, ProbeRows
from mlcl.evaluation.rankings_without import LabelBlocks
from mlcl.evaluation.retrieval import Neighbours, retrieve
from mlcl.evaluation.scores import (
    AT_HALF,
    Scoring,
    embedding_metrics,
    evaluate,
    evaluate_embeddings,
    metric_names,
)
from mlcl.evaluation.tasks import NO_FACTS, LabelFacts, Targets, Task, frequency_bands

__all__ = [
    "AT_HALF",
    "FEW_SHOT_METRICS",
    "METRICS",
    "NO_FACTS",
    "ClassPrediction",
    "Counts",
    "Decision",
    "EmbeddedRows",
    "EmbeddingMetric",
    "Ensemble",
    "Features",
    "FewShot",
    "LabelBlocks",
    "LabelFacts",
    "LabelPrediction",
    "Metric",
    "Mode",
    "Neighbours",
    "PosthocResult",
    "ProbeGrid",
    "ProbeResult",
    "ProbeRows",
    "QueryRows",
    "Scoring",
    "Setting",
    "Targets",
    "Task",
    "blend",
    "choose",
    "choose_ensemble",
    "embedding_metrics",
    "evaluate",
    "evaluate_embeddings",
    "frequency_bands",
    "knn_probabilities",
    "linear_probe",
    "metric_names",
    "neighbour_overlap",
    "predict",
    "retrieve",
    "search",
]
