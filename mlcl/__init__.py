"""mlcl: which multi-label or hierarchical contrastive loss works on your data, and at which settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from mlcl.training.export import ExportedModel

__version__ = "0.1.0"


def load_model(folder: str | Path, device: str = "auto") -> ExportedModel:
    """The model in a folder that `mlcl export` wrote; `device` is auto, cpu or cuda.

    Needs neither the data set nor a network, Ray or MLflow. Raises UserError for a damaged folder and for a
    package that the encoder needs and that is not installed.
    """
    # Later than the package: a loss on its own needs torch alone.
    from mlcl.training.export import load_model

    return load_model(folder, device)
