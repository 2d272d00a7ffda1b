"""The network of an exported model: the encoder, and the layers from its output to logits.

Shapes: M rows, D embedding, O the encoder's output (D, or D + L), L labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from mlcl.config import JobConfig
from mlcl.data import LabelSpace
from mlcl.errors import UserError
from mlcl.models import build_encoder
from mlcl.training.builders import classifier_layer, linear_layer
from mlcl.training.checkpoint import load_trained_weights
from mlcl.training.embeddings import label_logits
from mlcl.training.files import PROBE, WEIGHTS
from mlcl.training.objective import CLASSIFIER, ContrastiveModel, embedding_of


class Network(nn.Module):
    """An encoder with its `layers`: `classifier`, `probe` or both."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.layers = nn.ModuleDict()
        self.dim = int(encoder.dim)  # type: ignore[arg-type]
        self.label_logits = label_logits(encoder)

    def features(self, output_MO: Tensor, layer: str) -> Tensor:
        """What a layer reads: the classifier the whole output, the probe the embedding."""
        return output_MO if layer == CLASSIFIER else embedding_of(output_MO, self.label_logits)


def trained_network(run: Path, model: ContrastiveModel, space: LabelSpace) -> Network:
    """The network of a run from the folder `model` that it left, `model` being its job's, newly built.

    Raises UserError for weights that cannot be read or belong to another model.
    """
    weights = read_weights(run / WEIGHTS)
    try:
        load_trained_weights(model, weights)
    except RuntimeError as error:
        raise UserError("weights of another model", file=run / WEIGHTS, found=error) from None
    network = Network(model.encoder)
    if model.objective.classifier is not None:
        network.layers[CLASSIFIER] = model.objective.classifier.linear
    if (run / PROBE).exists():
        network.layers["probe"] = linear_layer(network.dim, space)
        layer = read_weights(run / PROBE)
        flat = {"linear.weight": layer["weight"].flatten(0, -2), "linear.bias": layer["bias"].flatten()}
        network.layers["probe"].load_state_dict(flat)
    if not network.layers:
        raise UserError("the run left no classifier and no linear probe", file=run)
    return network


def rebuilt_network(
    job: JobConfig,
    space: LabelSpace,
    vocabulary_size: int | None,
    input_columns: Mapping[str, int],
    folder: Path,
    *,
    probe: bool,
) -> Network:
    """The same network, with weights that the caller sets; `folder` is that of the exported model.

    Raises UserError where a package that the encoder needs is not installed.
    """
    size = space.n_classes
    # Graph and distances are buffers, so they come with the weights.
    encoder = build_encoder(
        job.encoder,
        vocabulary_size=vocabulary_size,
        labels=size * max(1, len(space.aspects)),
        label_graph_LL=torch.ones(size, size),
        input_columns=input_columns,
        folder=folder,
    )
    network = Network(encoder)
    if job.objective.classifier_weight > 0:
        network.layers[CLASSIFIER] = classifier_layer(job, encoder, space, 1 - torch.eye(size))
    if probe:
        network.layers["probe"] = linear_layer(network.dim, space)
    return network


def read_weights(file: Path) -> dict[str, Tensor]:
    """Tensors by name. Raises UserError for what is no whole safetensors file."""
    try:
        tensors: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError("cannot read these weights as safetensors", file=file, found=error) from None
    return tensors
