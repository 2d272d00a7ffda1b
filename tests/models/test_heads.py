import pytest
import torch
from torch import nn

from mlcl.models.heads import LinearClassifier, Projection


def test_projection_kinds():
    h = torch.randn(5, 6)
    for kind, dim in (("mlp", 3), ("linear", 3), ("identity", 6)):
        projection = Projection(kind, 6, dim=3)
        assert projection.dim == dim
        assert projection(h).shape == (5, dim)
    assert torch.equal(Projection("identity", 6)(h), h)
    unit_h = h / h.square().sum(1, keepdim=True).sqrt()
    for kind in ("mlp", "identity"):
        plain_projection, scaled_projection = (
            Projection(kind, 6, dim=3, normalize_input=normalize_input) for normalize_input in (False, True)
        )
        scaled_projection.load_state_dict(plain_projection.state_dict())
        torch.testing.assert_close(scaled_projection(h), plain_projection(unit_h))
    with pytest.raises(ValueError, match="unknown projection"):
        Projection("cubic", 6)


def test_mlp_has_one_hidden_layer():
    sizes = lambda p: [tuple(m.weight.shape) for m in p.modules() if isinstance(m, nn.Linear)]  # noqa: E731
    assert sizes(Projection("mlp", 6, dim=3)) == [(6, 6), (3, 6)]
    assert sizes(Projection("mlp", 6, dim=3, hidden=4)) == [(4, 6), (3, 4)]


def test_classifier_shapes():
    h = torch.randn(5, 6)
    assert LinearClassifier(6, 4)(h).shape == (5, 4)
    classifier = LinearClassifier(6, 4, aspects=3)
    logits = classifier(h)
    assert logits.shape == (5, 3, 4)
    torch.testing.assert_close(logits[:, 1], classifier.linear(h)[:, 4:8])
