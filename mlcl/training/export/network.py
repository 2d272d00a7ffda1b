"""The network of an exported model, and its datastore.

The datastore is a Parquet file with id, embedding and label of each training row.

Shapes: M rows, N training rows, D embedding, O the encoder's output (D, or D + L), L labels, A aspects.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from mlcl.config import JobConfig
from mlcl.data import LabelSpace
from mlcl.data.columns import label_rows, single_classes
from mlcl.errors import UserError
from mlcl.evaluation import Task
from mlcl.labels import LabelRows
from mlcl.models import WithOwnLogits, build_encoder
from mlcl.training.builders import classifier_layer, linear_layer
from mlcl.training.checkpoint import load_trained_weights
from mlcl.training.classifier import Labels
from mlcl.training.embeddings import Datastore, RankRows, label_layer, label_logits
from mlcl.training.objective import CLASSIFIER, ContrastiveModel
from mlcl.training.row_predictions import as_column, as_lists
from mlcl.training.run_files import PROBE, WEIGHTS, matrix


class Network(nn.Module):
    """An encoder with the layers of its predictors.

    `layers` has `classifier`, `probe` or both as keys.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.layers = nn.ModuleDict()
        self.dim = int(encoder.dim)  # type: ignore[arg-type]
        self.label_logits = label_logits(encoder)

    def features(self, output_MO: Tensor, layer: str) -> Tensor:
        """Returns the input of a layer: the whole output for `classifier`, the embedding for `probe`."""
        return output_MO if layer == CLASSIFIER else output_MO[:, : self.dim]


def load_trained_network(run: Path, model: ContrastiveModel, space: LabelSpace) -> Network:
    """Loads a trained network from `run`, the folder `model` in the folder of a run.

    `model` is the newly built model of the run's job; it gets the trained weights. Raises UserError for
    weights that cannot be read or belong to another model, and if there is neither a classifier nor a linear
    probe.
    """
    weights = read_weights(run / WEIGHTS)
    try:
        load_trained_weights(model, weights)
    except RuntimeError as error:
        raise UserError("weights of another model", file=run / WEIGHTS, found=error) from None
    network = Network(model.encoder)
    if model.objective.classifier is not None:
        network.layers[CLASSIFIER] = model.objective.classifier.linear
    elif label_layer(model.encoder) is not None:
        network.layers[CLASSIFIER] = WithOwnLogits(network.dim)
    if (run / PROBE).exists():
        network.layers["probe"] = linear_layer(network.dim, space)
        layer = read_weights(run / PROBE)
        state = {"linear.weight": layer["weight"].flatten(0, -2), "linear.bias": layer["bias"].flatten()}
        network.layers["probe"].load_state_dict(state)
    if not network.layers:
        raise UserError("the run left no classifier and no linear probe", file=run)
    return network


def rebuild_network(
    job: JobConfig,
    space: LabelSpace,
    words: int | None,
    columns: Mapping[str, int],
    folder: Path,
    *,
    probe: bool,
) -> Network:
    """Builds the network of an exported model with random weights, which the caller replaces.

    `words` is the size of the vocabulary, `columns` the number of columns of each frozen input. Raises
    UserError if a package that the encoder needs is not installed.
    """
    size = space.n_classes
    # Graph and distances are buffers, so they are loaded with the weights.
    encoder = build_encoder(
        job.encoder,
        vocabulary_size=words,
        labels=size * max(1, len(space.aspects)),
        label_graph_LL=torch.ones(size, size),
        input_columns=columns,
        folder=folder,
    )
    network = Network(encoder)
    if job.objective.classifier_weight > 0 or label_layer(encoder) is not None:
        network.layers[CLASSIFIER] = classifier_layer(job, encoder, space, 1 - torch.eye(size))
    if probe:
        network.layers["probe"] = linear_layer(network.dim, space)
    return network


def read_weights(file: Path) -> dict[str, Tensor]:
    """Reads tensors by name from a safetensors file. Raises UserError for a missing or damaged file."""
    try:
        tensors: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError("cannot read these weights as safetensors", file=file, found=error) from None
    return tensors


def write_datastore(file: Path, store: Datastore, ids: list[str]) -> None:
    """Writes a datastore. A label is a class index, a list of indices, or one per aspect; -1 if unknown."""
    labels = store.labels
    column = as_lists(labels) if isinstance(labels, LabelRows) else as_column(labels.to(torch.int32).numpy())
    embeddings = as_column(store.rows.values.numpy())
    table = pa.table({"id": pa.array(ids, pa.string()), "embedding": embeddings, "label": column})
    pq.write_table(table, file, compression="zstd")


def read_datastore(file: Path, task: Task, n_classes: int, dim: int) -> Datastore:
    """Reads a datastore of embeddings (N, dim). Raises UserError if it is damaged or another model's."""
    try:
        table = pq.read_table(file, columns=["embedding", "label"])
        embedding_ND = matrix(table["embedding"])
        labels = _read_labels(table["label"], task, n_classes)
    except (OSError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise UserError("not the datastore of a model", file=file, found=error) from None
    if embedding_ND.shape[1] != dim or not bool(torch.isfinite(embedding_ND).all()):
        raise UserError("embeddings of another model, or not finite", file=file)
    return Datastore(RankRows(embedding_ND), labels, task, n_classes)


def _read_labels(column: Any, task: Task, n_classes: int) -> Labels:
    lowest = 0 if task == "multi_label" else -1  # -1: unknown
    entries = column if task == "single" else pc.list_flatten(column)
    valid = pc.and_(pc.greater_equal(entries, lowest), pc.less(entries, n_classes))
    if not pc.all(valid, min_count=0).as_py():
        raise ValueError(f"labels outside {lowest} to {n_classes - 1}")
    if task == "multi_label":
        return label_rows(column, n_classes)
    return matrix(column).long() if task == "aspects" else single_classes(column)
