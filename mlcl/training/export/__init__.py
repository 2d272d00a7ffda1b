"""Exports a trained model into a folder, from which it is loaded without data set, hub or tracker."""

from mlcl.training.export.loading import load_model
from mlcl.training.export.model import ExportedModel, Predictions
from mlcl.training.export.model_index import Index, PredictorName
from mlcl.training.export.model_writer import write_export

__all__ = ["ExportedModel", "Index", "Predictions", "PredictorName", "load_model", "write_export"]
