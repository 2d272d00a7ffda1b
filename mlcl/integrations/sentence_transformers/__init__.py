"""Adapter of sentence-transformers: a loss, label lists and paths, and batches by label for its trainer."""

from mlcl.integrations.sentence_transformers.batches import LabelBatches, LabelCollator, label_batches
from mlcl.integrations.sentence_transformers.loss import LabelLoss

__all__ = ["LabelBatches", "LabelCollator", "LabelLoss", "label_batches"]
