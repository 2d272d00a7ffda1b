import pytest
import torch

from mlcl.models import label_layers
from mlcl.models.label_layers import LabelAttention

TEXTS, TOKENS, DIM, LABELS = 3, 6, 4, 7


def make(pooling="max"):
    torch.manual_seed(0)
    layer = LabelAttention(DIM, LABELS, pooling).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_()  # attention far from the uniform one at the start
    return layer


def states():
    h = torch.randn(TEXTS, TOKENS, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return h, torch.arange(TOKENS) < torch.tensor([[6], [1], [4]])


def by_hand(layer, h, mask):
    """Returns the output of the layer, computed for each text, label and token in turn."""
    V, U, w, b = layer.key.weight, layer.query.weight, layer.output.weight, layer.output.bias
    rows = []
    for text, tokens in zip(h, mask.sum(1).tolist(), strict=True):
        vectors, logits = [], []
        for label in range(LABELS):
            scores = torch.stack([U[label] @ torch.tanh(V @ text[t]) for t in range(tokens)])
            shares = scores.exp() / scores.exp().sum()
            vectors.append(sum(shares[t] * text[t] for t in range(tokens)))
            logits.append(w[label] @ vectors[-1] + b[label])
        label_vectors = torch.stack(vectors)
        pooled = label_vectors.max(0).values if layer.pooling == "max" else label_vectors.mean(0)
        rows.append(torch.cat([pooled, torch.stack(logits)]))
    return torch.stack(rows)


@pytest.mark.parametrize("at_once", [512, 7, 3, 1])
@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_equals_the_loop_over_labels_and_tokens(monkeypatch, pooling, at_once):
    monkeypatch.setattr(label_layers, "LABELS_AT_ONCE", at_once)
    layer, (h, mask) = make(pooling), states()
    h.requires_grad_()
    output, expected = layer(h, mask), by_hand(layer, h, mask)
    assert output.shape == (TEXTS, DIM + LABELS)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-13)
    inputs = [h, *layer.parameters()]
    weights = torch.randn(output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    gradients, expected_gradients = (
        torch.autograd.grad((x * weights).sum(), inputs) for x in (output, expected)
    )
    for left, right in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_leaves_it_in_float32(dtype):
    layer, (h, mask) = make().float(), states()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(h.to(dtype), mask)
    assert output.dtype == torch.float32
    torch.testing.assert_close(output, layer(h.to(dtype).float(), mask))


def saved(layer, h, mask):
    """Returns the output of the layer, and the number of elements that autograd keeps for the backward."""
    saved_sizes = {}

    def pack(tensor):
        saved_sizes[tensor.untyped_storage().data_ptr()] = (
            tensor.untyped_storage().nbytes() // tensor.itemsize
        )
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = layer(h, mask)
    return output, sum(saved_sizes.values())


def test_blocks_keep_neither_weights_nor_vectors_for_the_backward(monkeypatch):
    torch.manual_seed(0)
    layer, h, mask = LabelAttention(8, 600), torch.randn(2, 40, 8), torch.ones(2, 40, dtype=torch.bool)
    monkeypatch.setattr(label_layers, "LABELS_AT_ONCE", 600)
    full_output, full_size = saved(layer, h, mask)
    monkeypatch.setattr(label_layers, "LABELS_AT_ONCE", 50)
    block_output, block_size = saved(layer, h, mask)
    torch.testing.assert_close(block_output, full_output)
    assert full_size > 2 * 600 * (40 + 8)
    assert block_size < 2 * 600 * 40 / 2
