"""Encoders, projection heads and classifiers: PyTorch modules that are built from keyword arguments."""

from mlcl.models.encoder import Encoder
from mlcl.models.encoders import ENCODERS, build_encoder
from mlcl.models.heads import LinearClassifier, Projection, PrototypeClassifier, WithOwnLogits, tree_distances
from mlcl.models.label_layers import label_graph
from mlcl.models.model_folder import model_folder

__all__ = [
    "ENCODERS",
    "Encoder",
    "LinearClassifier",
    "Projection",
    "PrototypeClassifier",
    "WithOwnLogits",
    "build_encoder",
    "label_graph",
    "model_folder",
    "tree_distances",
]
