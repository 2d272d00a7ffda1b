"""Batches drawn by label, for any loop: `LabelBatchSampler` goes into a DataLoader. Needs torch and numpy."""

from mlcl.samplers.epochs import Balanced, EpochSampler, Grouped
from mlcl.samplers.label_batches import LabelBatchSampler

__all__ = ["Balanced", "EpochSampler", "Grouped", "LabelBatchSampler"]
