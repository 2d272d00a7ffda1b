import math

import numpy as np
import pytest
import torch

from mlcl.evaluation import NO_FACTS, LabelFacts, evaluate, frequency_bands
from mlcl.labels import LabelRows

BAND_NAMES = [f"{band}_{f1}" for band in ("head", "medium", "tail") for f1 in ("micro_f1", "macro_f1")]


def test_the_bounds_belong_to_the_middle():
    bands = frequency_bands(np.array([0, 19, 20, 100, 101]), (20, 100))
    assert bands.tolist() == [2, 2, 1, 1, 0]


def test_a_band_without_labels_or_rows_has_no_value():
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2]])
    facts = LabelFacts(band=np.array([0, 1]))
    names = [*BAND_NAMES, "head_accuracy", "medium_accuracy", "tail_accuracy"]
    values = evaluate("single", p, torch.tensor([0, 0]), only=names, facts=facts)
    assert {name for name, value in values.items() if math.isnan(value)} == {
        "medium_accuracy", "medium_micro_f1", "medium_macro_f1",
        "tail_accuracy", "tail_micro_f1", "tail_macro_f1",
    }  # fmt: skip
    label_values = evaluate(
        "multi_label", p, LabelRows.from_lists([[0], [0]], 2), only=BAND_NAMES, facts=facts
    )
    assert {name for name, value in label_values.items() if math.isnan(value)} == {
        f"{band}_{average}_f1" for band in ("medium", "tail") for average in ("micro", "macro")
    }


def test_a_mean_over_aspects_leaves_out_one_without_a_value():
    p = torch.tensor([[[0.9, 0.1], [0.2, 0.8]], [[0.8, 0.2], [0.7, 0.3]]])
    facts = LabelFacts(band=np.array([[0, 2], [0, 2]]))  # the first aspect has no row of the tail
    names = ["head_accuracy", "medium_accuracy", "tail_accuracy"]
    values = evaluate("aspects", p, torch.tensor([[0, 1]] * 2), aspects=["a", "b"], only=names, facts=facts)
    assert values == pytest.approx(dict(zip(names, (1, math.nan, 0.5), strict=True)), nan_ok=True)


def test_a_macro_average_of_a_band_is_over_its_labels_that_a_row_has():
    p = torch.tensor([[0.9, 0.1, 0.8], [0.8, 0.2, 0.1]])
    values = evaluate(
        "multi_label", p, LabelRows.from_lists([[0], [0]], 3), only=["tail_macro_f1", "tail_micro_f1"],
        facts=LabelFacts(band=np.array([2, 2, 2])),
    )  # fmt: skip
    assert values == {"tail_macro_f1": 1.0, "tail_micro_f1": pytest.approx(4 / 5)}


def test_each_aspect_has_bands_of_its_own():
    p = torch.tensor([[[0.9, 0.1], [0.9, 0.1]], [[0.9, 0.1], [0.1, 0.9]]])
    facts = LabelFacts(band=np.array([[0, 2], [2, 0]]))
    values = evaluate("aspects", p, torch.tensor([[0, 0], [1, 1]]), only=["head_accuracy"], facts=facts)
    assert values == {"head_accuracy": 1.0}
    assert LabelFacts(facts.band, np.zeros((2, 1))).of_aspect(1).in_band("head").tolist() == [False, True]


def test_metrics_say_what_they_lack():
    p, y = torch.tensor([[0.9, 0.1]]), torch.tensor([0])
    with pytest.raises(ValueError, match="training counts"):
        evaluate("single", p, y, only=["head_accuracy"], facts=NO_FACTS)
    with pytest.raises(ValueError, match="hierarchy"):
        evaluate("single", p, y, only=["lca_distance"])


HIERARCHY = ("hierarchical_precision", "hierarchical_recall", "hierarchical_f1", "lca_distance")
PATHS = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]])


def of_hierarchy(predicted, row_path, target=None):
    row_path = None if row_path is None else np.array(row_path)
    targets = torch.tensor(row_path[:, -1] if target is None else target)
    p = torch.nn.functional.one_hot(torch.tensor(predicted), len(PATHS)).float()
    return evaluate("single", p, targets, only=HIERARCHY, facts=LabelFacts(path=PATHS, row_path=row_path))


def test_the_hierarchy_is_that_of_the_rows_own_labels():
    values = of_hierarchy([0, 2], [[0, 0, 0], [1, 2, 2]])
    assert values == dict.fromkeys(HIERARCHY[:3], 4 / 6) | {"lca_distance": 1.0}


def test_a_level_that_a_row_lacks_is_left_out_for_that_row():
    values = of_hierarchy([0, 0, 3], [[-1, 0, 1], [-1, -1, 0], [0, -1, 2]])
    assert values == dict.fromkeys(HIERARCHY[:3], 2 / 5) | {"lca_distance": pytest.approx(1.0)}


def test_rows_without_a_target_are_left_out_with_their_paths():
    values = of_hierarchy([3, 0, 2], [[1, 2, -1], [0, 0, 0], [0, 1, 2]])
    assert values == dict.fromkeys(HIERARCHY[:3], 1.0) | {"lca_distance": 0.0}


def test_for_sound_rows_their_own_paths_change_no_value():
    rng = np.random.default_rng(0)
    predicted, target = rng.integers(0, 4, (2, 500))
    assert of_hierarchy(predicted, PATHS[target]) == of_hierarchy(predicted, None, target)
