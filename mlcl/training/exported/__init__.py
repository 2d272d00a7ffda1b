"""A trained model as a folder of its own: written from a run, loaded without data set, hub or tracker."""

from mlcl.training.exported.index import Index, Way
from mlcl.training.exported.model import ExportedModel, load_model
from mlcl.training.exported.predictions import Predictions
from mlcl.training.exported.write import write_export

__all__ = ["ExportedModel", "Index", "Predictions", "Way", "load_model", "write_export"]
