"""What an encoder is worth: metrics, nearest neighbours, the search after training, and the linear probe."""

from mlcl.evaluation.decision import Decision, Mode, choose
from mlcl.evaluation.embedded_rows import EmbeddedRows
from mlcl.evaluation.embedding_scores import embedding_metrics, evaluate_embeddings
from mlcl.evaluation.knn import blend, knn_probabilities, neighbour_overlap
from mlcl.evaluation.label_facts import NO_FACTS, LabelFacts, frequency_bands
from mlcl.evaluation.metric import METRICS, EmbeddingMetric, Metric
from mlcl.evaluation.posthoc import PosthocResult, search
from mlcl.evaluation.predictions import ClassPrediction, Counts, LabelPrediction
from mlcl.evaluation.probe import ProbeResult, linear_probe, predict
from mlcl.evaluation.probe_training import ProbeGrid, ProbeRows
from mlcl.evaluation.retrieval import Neighbours, retrieve
from mlcl.evaluation.scores import AT_HALF, Scoring, evaluate, metric_names
from mlcl.evaluation.setting_values import QueryRows, Setting
from mlcl.evaluation.tasks import Targets, Task

__all__ = [
    "AT_HALF",
    "METRICS",
    "NO_FACTS",
    "ClassPrediction",
    "Counts",
    "Decision",
    "EmbeddedRows",
    "EmbeddingMetric",
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
