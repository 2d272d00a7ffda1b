"""Encoders, projection heads and classifiers: plain modules, built from the job in `build`."""

from mlcl.models.classifier import Classifier as LinearClassifier
from mlcl.models.factory import build_encoder, build_projection
from mlcl.models.label_graph import label_graph
from mlcl.models.model_folder import model_folder
from mlcl.models.prototypes import PrototypeClassifier, tree_distances

__all__ = [
    "LinearClassifier",
    "PrototypeClassifier",
    "build_encoder",
    "build_projection",
    "label_graph",
    "model_folder",
    "tree_distances",
]
