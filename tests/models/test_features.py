"""Tests of the network on frozen inputs against its equations, which are written as loops."""

import math

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import nn

from mlcl.models.encoders.features import FeatureNetwork, FeaturesConfig, SparseLinear, SparseRows
from mlcl.models.heads import WithOwnLogits

COLUMNS = torch.tensor([[0, 3, 6], [5, 2, 0], [0, 0, 0]], dtype=torch.int32)
VALUES = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)


def dense(columns, values, width):
    x = torch.zeros(len(columns), width, dtype=values.dtype)
    for row in range(len(columns)):
        for column, value in zip(columns[row].tolist(), values[row].tolist(), strict=True):
            if column < width:
                x[row, column] += value
    return x


@pytest.mark.parametrize("width", [7, 4])
def test_a_sparse_map_is_the_matrix_product(width):
    """The gradient equals that of the product, too, also if only the first columns are read."""
    layer = SparseLinear(width, 3, std=1.0).double()
    output_gradient = torch.randn(3, 3, dtype=torch.float64)
    layer(SparseRows.of(COLUMNS, VALUES)).backward(output_gradient)
    x = dense(COLUMNS, VALUES, width)
    torch.testing.assert_close(layer(SparseRows.of(COLUMNS, VALUES)), x @ layer.weight_FO)
    torch.testing.assert_close(layer.weight_FO.grad, x.T @ output_gradient)


def test_on_other_devices_it_is_the_same_map(monkeypatch):
    layer = SparseLinear(5, 3, std=1.0).double()
    output = layer(SparseRows.of(COLUMNS, VALUES))
    output.sum().backward()
    gradient, layer.weight_FO.grad = layer.weight_FO.grad, None
    bag_output = layer.multiply_by_bag(SparseRows.from_padded(COLUMNS, VALUES))
    bag_output.sum().backward()
    torch.testing.assert_close(bag_output, output)
    torch.testing.assert_close(layer.weight_FO.grad, gradient)


def slow(network, sparse, given):
    """Returns the embedding and own logits of each row, computed from the equations without dropout."""
    embedding, label_logits = [], []
    for row in range(len(given)):
        h = network.bias.clone()
        width = network.deep["tfidf"].weight_FO.shape[0]
        for column in range(sparse.shape[1]):
            if column < width:
                h = h + sparse[row, column] * network.deep["tfidf"].weight_FO[column]
        h = h + network.deep["column"].weight @ given[row]
        h = torch.stack([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in h])
        for layer in network.layers:
            if isinstance(layer, nn.Linear):
                h = layer.weight @ h + layer.bias
                h = torch.stack([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in h])
        embedding.append(h)
        linear = sparse[row] @ network.wide["tfidf"].weight_FO + network.wide["column"].weight @ given[row]
        label_logits.append(0.3 * linear)
    return torch.cat([torch.stack(embedding), torch.stack(label_logits)], dim=1)


def test_the_network_is_its_equations():
    network = FeatureNetwork({"tfidf": 7, "column": 2}, 3, hidden=[5], out=4, deep_columns=4).double().eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    assert (network.dim, network.label_logits) == (4, 3)
    column = torch.randn(3, 2, dtype=torch.float64)
    output = network(tfidf_columns=COLUMNS, tfidf_values=VALUES, column=column)
    with torch.no_grad():
        torch.testing.assert_close(output, slow(network, dense(COLUMNS, VALUES, 7), column))


def test_without_the_wide_path_there_are_no_own_logits():
    network = FeatureNetwork({"column": 2}, 3, out=4, wide=False)
    assert network.label_logits == 0
    assert network(column=torch.randn(5, 2)).shape == (5, 4)
    assert list(network.wide.parameters()) == []


def test_own_logits_are_added_to_those_of_the_layer_or_stand_alone():
    layer = nn.Linear(4, 6)
    output = torch.randn(5, 10)
    aspects = WithOwnLogits(4, nn.Sequential(layer, nn.Unflatten(1, (2, 3))))
    expected = F.linear(output[:, :4], layer.weight, layer.bias) + output[:, 4:]
    torch.testing.assert_close(aspects(output), expected.reshape(5, 2, 3))
    assert torch.equal(WithOwnLogits(4)(output), output[:, 4:])


@pytest.mark.parametrize(
    ("keys", "message"),
    [({"inputs": ["transformer"]}, "the input transformer needs transformer"),
     ({"inputs": ["tfidf", "image"]}, "different modalities"),
     ({"inputs": ["words", "column"]}, "different modalities"),
     ({"inputs": ["tfidf", "tfidf"]}, "listed twice"), ({"inputs": []}, "at least 1 item"),
     ({"inputs": ["glove"]}, "'tfidf', 'characters', 'words', 'transformer', 'image' or 'column'"),
     ({"inputs": ["image"], "image": {"network": "resnet18"}}, "a frozen network needs weights")],
)  # fmt: skip
def test_sections_that_do_not_fit_are_refused(keys, message):
    with pytest.raises(ValidationError, match=message):
        FeaturesConfig(name="features", **keys)
