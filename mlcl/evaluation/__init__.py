"""What an encoder is worth: metrics, nearest neighbours, the search after training, and the linear probe."""

from mlcl.evaluation.decision import Decision, Mode
from mlcl.evaluation.knn import blend, knn_probabilities
from mlcl.evaluation.metric import METRICS, Metric
from mlcl.evaluation.neighbour_merge import Neighbours
from mlcl.evaluation.overlap import neighbour_overlap
from mlcl.evaluation.posthoc import PosthocResult, search
from mlcl.evaluation.predictions import ClassPrediction, Counts, LabelPrediction
from mlcl.evaluation.probe import ProbeResult, linear_probe, predict
from mlcl.evaluation.probe_training import ProbeGrid, ProbeRows
from mlcl.evaluation.retrieval import retrieve
from mlcl.evaluation.scores import AT_HALF, Scoring, evaluate, metric_names
from mlcl.evaluation.setting_values import QueryRows, Setting
from mlcl.evaluation.tasks import Targets, Task
from mlcl.evaluation.thresholds import choose

__all__ = [
    "AT_HALF",
    "METRICS",
    "ClassPrediction",
    "Counts",
    "Decision",
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
    "evaluate",
    "knn_probabilities",
    "linear_probe",
    "metric_names",
    "neighbour_overlap",
    "predict",
    "retrieve",
    "search",
]
