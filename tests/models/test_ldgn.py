import math

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from mlcl.labels import LabelRows
from mlcl.models.encoders.ldgn import Ldgn
from mlcl.models.label_layers import label_graph, normalize_graph

ROWS = [[0, 1], [0, 1, 2], [2], [], [0]]
LABELS = 4  # no row holds label 3


def make(pooling="max", dropout=0.0, layers=2):
    torch.manual_seed(0)
    graph = label_graph(LabelRows.from_lists(ROWS, LABELS))
    encoder = Ldgn(30, graph, embedding_dim=5, width=3, graph_layers=layers, dropout=dropout, pooling=pooling)
    return encoder.eval()


def batch(lengths, total):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 30, (len(lengths), total), generator=generator)
    mask = torch.arange(total) < torch.tensor(lengths).unsqueeze(1)
    return ids, mask


# Slow versions: loops over lists of numbers, written from the equations.


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def slow_attention(states, label):
    weights = [math.exp(dot(state, label)) for state in states]
    shares = [weight / math.fsum(weights) for weight in weights]
    return [
        math.fsum(share * state[k] for share, state in zip(shares, states, strict=True))
        for k in range(len(label))
    ]


def slow_normalized(graph):
    rows = [math.fsum(row) for row in graph]
    columns = [math.fsum(column) for column in zip(*graph, strict=True)]
    return [
        [value / math.sqrt(rows[i] * columns[j]) for j, value in enumerate(row)]
        for i, row in enumerate(graph)
    ]


def slow_convolution(vectors, graph, weights):
    for weight in weights:
        projected_vectors = [[dot(row, vector) for row in weight.weight.tolist()] for vector in vectors]
        mixed_vectors = [
            [dot(row, column) for column in zip(*projected_vectors, strict=True)] for row in graph
        ]
        vectors = [[x if x > 0 else 0.01 * x for x in row] for row in mixed_vectors]
    return vectors


def slow_output(encoder, words, graph, pooling):
    states, _ = encoder.recurrent(encoder.embedding(words).unsqueeze(0))
    parts = [slow_attention(states[0].tolist(), label) for label in encoder.labels_LK.tolist()]
    statistical_vectors = slow_convolution(parts, slow_normalized(graph), encoder.statistical.weights)
    left, right = (
        [[dot(row, vector) for row in side.weight.tolist()] for vector in statistical_vectors]
        for side in (encoder.left, encoder.right)
    )
    affinity = [[1 / (1 + math.exp(-dot(a, b))) for b in right] for a in left]
    dynamic_vectors = slow_convolution(
        statistical_vectors, slow_normalized(affinity), encoder.dynamic.weights
    )
    vectors = [a + b for a, b in zip(statistical_vectors, dynamic_vectors, strict=True)]
    weight, bias = encoder.classifier.weight[0].tolist(), encoder.classifier.bias.item()
    pool = max if pooling == "max" else lambda column: math.fsum(column) / len(column)
    return [pool(column) for column in zip(*vectors, strict=True)] + [dot(weight, v) + bias for v in vectors]


@pytest.mark.parametrize(("pooling", "layers"), [("max", 2), ("mean", 1)])
def test_equals_the_equations_in_slow_loops(pooling, layers):
    encoder = make(pooling, layers=layers).double()
    ids, mask = batch([4, 2], 4)
    graph = label_graph(LabelRows.from_lists(ROWS, LABELS)).tolist()
    expected = [slow_output(encoder, ids[row, mask[row]], graph, pooling) for row in range(2)]
    # The graph is kept in float32.
    torch.testing.assert_close(
        encoder(ids, mask), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-6
    )


def test_the_graph_holds_conditional_probabilities():
    graph = label_graph(LabelRows.from_lists(ROWS, LABELS))
    assert torch.equal(label_graph(LabelRows.from_lists([[], []], 3)), torch.eye(3))
    for i in range(LABELS):
        for j in range(LABELS):
            label_rows = [row for row in ROWS if j in row]
            joint_rows = [row for row in label_rows if i in row]
            expected = len(joint_rows) / len(label_rows) if label_rows else float(i == j)
            assert graph[i, j].item() == pytest.approx(expected)
    assert graph.dtype == torch.float32


def test_normalized_never_lets_a_vector_grow():
    graph = torch.rand(20, 5, 5, dtype=torch.float64) ** 9
    weight = normalize_graph(graph.log())
    assert weight.max() <= 1
    assert torch.linalg.matrix_norm(weight, 2).max() <= 1 + 1e-12


def test_labels_that_no_sigmoid_joins_leave_finite_weights_and_gradients():
    affinity = torch.tensor([[-500.0, -500.0], [500.0, -2e4]], requires_grad=True)
    weight = normalize_graph(F.logsigmoid(affinity))
    weight.square().sum().backward()
    assert torch.isfinite(weight).all()
    assert torch.isfinite(affinity.grad).all()


def test_gradients_equal_differences():
    encoder = make().double()
    ids, mask = batch([3, 1], 3)
    names = ("labels_LK", "left.weight", "statistical.weights.0.weight", "recurrent.weight_hh_l0")
    values = tuple(encoder.get_parameter(name).detach().requires_grad_() for name in names)

    def output(*values):
        return functional_call(encoder, dict(zip(names, values, strict=True)), (ids, mask))

    assert torch.autograd.gradcheck(output, values)


def test_autocast_keeps_labels_in_float32():
    encoder = make()
    ids, mask = batch([6, 2, 0], 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = encoder(ids, mask)
    assert output.dtype == torch.float32
    torch.testing.assert_close(output, encoder(ids, mask), rtol=0.1, atol=0.05)
