"""Encoders, projection heads and classifiers: plain modules, built from the job in `build`."""

from mlcl.models.build import build_encoder, build_projection
from mlcl.models.classifier import Classifier as LinearClassifier

__all__ = ["LinearClassifier", "build_encoder", "build_projection"]
