import math

import pytest
import torch

from mlcl.models.heads import PrototypeClassifier, distortion, tree_distances

PATHS = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [1, 2, 4]])


def make(weight=1.0, dim=6):
    torch.manual_seed(0)
    return PrototypeClassifier(dim, tree_distances(PATHS), weight=weight)


def pairs(matrix):
    row, column = torch.triu_indices(*matrix.shape, offset=1)
    return matrix[row, column]


def slow_distortion(points, distances, scale=None):
    """Returns the mean over ordered pairs, at the best scale or at a given one."""
    classes = range(len(points))
    ratios = [math.dist(points[k], points[m]) / distances[k][m] for k in classes for m in classes if k != m]
    if scale is None:
        scale = math.fsum(ratios) / math.fsum(ratio**2 for ratio in ratios)
    return math.fsum((scale * ratio - 1) ** 2 for ratio in ratios) / len(ratios)


def slow_tree_distance(a, b):
    """Returns the number of edges from both leaves up to the first group that they share."""
    depth = 0
    while depth < len(a) and a[depth] == b[depth] >= 0:
        depth += 1
    return len(a) - depth + len(b) - depth


def test_logits_are_distances_to_the_prototypes():
    classifier = make().double()
    h_BD = torch.randn(40, 6, dtype=torch.float64)
    logits = classifier(h_BD)
    for row, h in enumerate(h_BD.tolist()):
        for column, point in enumerate(classifier.prototypes_CD.tolist()):
            assert logits[row, column].item() == pytest.approx(-math.dist(h, point))


def test_a_small_distance_beside_large_norms_is_kept():
    classifier = make()
    with torch.no_grad():
        classifier.prototypes_CD += 1000
    h_BD = classifier.prototypes_CD.detach().repeat(10, 1) + 0.125
    logits = classifier(h_BD)[torch.arange(50), torch.arange(5).repeat(10)]
    torch.testing.assert_close(logits, torch.full((50,), -0.125 * math.sqrt(6)), rtol=1e-3, atol=0)


def test_distortion_equals_slow_loops_and_no_scale_is_better():
    points = torch.randn(5, 3, dtype=torch.float64)
    distances = tree_distances(PATHS).double()
    value = distortion(points, pairs(distances)).item()
    assert value == pytest.approx(slow_distortion(points.tolist(), distances.tolist()))
    scales = [0.05 * step for step in range(1, 100)]
    assert value <= min(slow_distortion(points.tolist(), distances.tolist(), scale) for scale in scales)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 70.0])
def test_points_that_match_have_no_distortion_at_any_scale(scale):
    points = torch.randn(6, 4, dtype=torch.float64)
    distances = torch.cdist(points, points)
    assert distortion(points * scale, pairs(distances)).item() == pytest.approx(0, abs=1e-12)
    # The corners of a simplex are equally far from each other.
    assert distortion(torch.eye(5) * scale, torch.full((10,), 4.0)).item() == pytest.approx(0, abs=1e-12)


def test_points_that_coincide_have_all_distortion_and_a_finite_gradient():
    points = torch.zeros(3, 2, requires_grad=True)
    value = distortion(points, torch.ones(3))
    value.backward()
    assert value.item() == 1
    assert torch.isfinite(points.grad).all()


def test_gradients_equal_differences():
    points = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    distance_P = pairs(tree_distances(PATHS)).double()
    assert torch.autograd.gradcheck(lambda x: distortion(x, distance_P), points)
    classifier = make(dim=3).double()
    assert torch.autograd.gradcheck(classifier, torch.randn(4, 3, dtype=torch.float64, requires_grad=True))


def test_the_regulariser_has_its_weight():
    classifier = make(weight=20.0)
    expected = slow_distortion(classifier.prototypes_CD.tolist(), tree_distances(PATHS).tolist())
    assert classifier.regulariser().item() == pytest.approx(20 * expected, rel=1e-5)


def test_tree_distances_equal_slow_loops_where_groups_are_unknown():
    generator = torch.Generator().manual_seed(4)
    groups = torch.randint(-1, 2, (9, 3), generator=generator)
    paths = torch.cat([groups, torch.arange(9).unsqueeze(1)], dim=1)
    distances = tree_distances(paths)
    for k, a in enumerate(paths.tolist()):
        for m, b in enumerate(paths.tolist()):
            assert distances[k, m].item() == (0 if k == m else slow_tree_distance(a, b))


def test_autocast_gives_float32():
    classifier = make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert classifier(torch.randn(30, 6).bfloat16()).dtype == torch.float32
        assert classifier.regulariser().dtype == torch.float32
