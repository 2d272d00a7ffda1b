import copy
import math
import pickle
import subprocess
import sys
from typing import Annotated

import pytest
import torch
from losses.oracles import PATH_LOSSES

from mlcl.labels import LabelRows
from mlcl.losses import (
    LOSSES,
    Interval,
    OverlapRule,
    build_loss,
    check_options,
    overlap_loss,
    positive_weights,
)


def test_every_loss_says_what_it_is():
    assert set(LOSSES) == {
        *("simclr", "supcon", "any", "all", "mulsupcon", "simdis", "jaccard", "knn"),
        *("himulcon", "hicone", "himulcone", "lascl", "jscl", "msc", "reg", "sincere"),
    }
    assert list(LOSSES) == sorted(LOSSES)
    label_kinds = {name: spec.labels for name, spec in LOSSES.items()}
    assert label_kinds.pop("simclr") == "none"
    assert label_kinds.pop("supcon") == "class"
    assert label_kinds.pop("jaccard") == "ratings"
    assert {label_kinds.pop(name) for name in PATH_LOSSES} == {"path"}
    assert set(label_kinds.values()) == {"multi_label"}
    assert [name for name, spec in LOSSES.items() if spec.similarity == "euclidean"] == ["knn"]
    assert all(spec.source and spec.summary for spec in LOSSES.values())


def test_defaults_pass_their_own_checks():
    for spec in LOSSES.values():
        for option in spec.options.values():
            assert option.default in option.allowed
        assert spec.resolve({}) == {name: option.default for name, option in spec.options.items()}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("simdiss", {}, r"unknown loss 'simdiss'; did you mean simdis\?; allowed: all, .*supcon"),
        ("simdis", {"penality": "inverse"}, r"no option 'penality'; did you mean penalty\?; allowed: form"),
        ("supcon", {"form": "printed"}, "supcon has no option 'form'; allowed: none"),
        ("simdis", {"form": "weight"}, "option form of simdis; found: 'weight'; allowed: weighted, printed"),
        ("simdis", {"rate": 1.0}, "rate of simdis goes with penalty exponential; found: penalty inverse"),
        ("simdis", {"penalty": "exponential"}, "found: penalty exponential, rate None"),
        ("simdis", {"penalty": "exponential", "rate": 0}, "found: 0; allowed: a number above 0"),
        (
            "simdis",
            {"factors": "similarity", "penalty": "exponential", "rate": 1.0},
            "penalty of simdis is of K.d; found: exponential",
        ),
        ("simdis", {"form": "printed", "normalizer": "factors"}, "normalizer of simdis; found: factors"),
        ("mulsupcon", {"normalization": 1}, "found: 1; allowed: paper, paper_valid, per_sample"),
        ("all", {"empty_match": 1}, "found: 1; allowed: True, False"),
        ("jaccard", {"threshold": 1.5}, "found: 1.5; allowed: a number from 0 to 1"),
        ("jaccard", {"threshold": None}, "found: None"),
        ("jaccard", {"threshold": True}, "found: True"),
        ("jaccard", {"threshold": float("nan")}, "found: nan"),
        ("himulcon", {"level_weights": "log"}, "found: 'log'; allowed: exp, uniform, a list of numbers"),
        ("himulcon", {"level_weights": [1.0, -1.0]}, r"found: \[1.0, -1.0\]"),
        ("himulcon", {"level_weights": [0, 0]}, r"found: \[0, 0\]"),
        ("himulcon", {"level_weights": []}, r"found: \[\]"),
        ("hicone", {"granularity": "row"}, "found: 'row'; allowed: pair, level"),
        ("hicone", {"level_weights": "exp"}, "hicone has no option 'level_weights'"),
        ("hicone", {"positives": "same"}, "found: 'same'; allowed: overlapping, equal"),
        ("lascl", {"unrelated": 0}, "found: 0; allowed: a number above 0 to 1"),
        ("jscl", {"normalizer": "positives"}, "found: 'positives'; allowed: candidates, similarities"),
        ("msc", {"beta": 0.0}, "found: 0.0; allowed: a number above 0"),
        ("knn", {"dynamic": "no"}, "option dynamic of knn; found: 'no'; allowed: True, False"),
    ],
)
def test_bad_options_are_named(name, options, message):
    for check in (check_options, lambda n, o: build_loss(n, **o)):
        with pytest.raises(ValueError, match=message):
            check(name, options)


def test_good_options_pass():
    check_options("simdis", {"penalty": "exponential", "rate": 2})
    check_options("jaccard", {"threshold": 0, "strict": False})
    assert build_loss("simdis", form="printed").options["form"] == "printed"


@pytest.mark.parametrize("name", list(LOSSES))
def test_a_loss_can_be_sent_to_another_process(name, rows):
    """A loss is pickled as it was built; statistics that it has computed since are left out."""
    loss = build_loss(name, temperature=0.3)
    data = pickle.dumps(loss)
    arguments = rows.z, rows.labels(name), rows.sample_ids()
    assert pickle.loads(data)(*arguments) == loss(*arguments) == copy.deepcopy(loss)(*arguments)
    assert len(pickle.dumps(loss)) == len(data)
    assert loss.stats is not None
    assert pickle.loads(pickle.dumps(loss)).stats is None


def test_an_unknown_reduction_is_refused():
    with pytest.raises(ValueError, match=r"did you mean mean\?; allowed: mean, sum, mean_valid, none"):
        build_loss("supcon", reduction="means")


def test_a_printed_model_shows_the_settings():
    text = repr(build_loss("simdis", normalize=True))
    assert "simdis, reduction=mean, normalize=True, form='weighted'" in text


Z = torch.zeros(3, 2)
CLASSES = torch.tensor([0, 1, 2])
ROWS = LabelRows.from_lists([[0], [1], [0, 1]], 2)


@pytest.mark.parametrize(
    ("name", "embeddings", "labels", "samples", "message"),
    [
        ("supcon", torch.zeros(3), CLASSES, None, r"embeddings .*\(3,\)"),
        ("supcon", torch.zeros(3, 2, 2), CLASSES, None, r"\(3, 2, 2\)"),
        ("supcon", torch.zeros(3, 2).long(), CLASSES, None, "must be floating"),
        ("supcon", Z, CLASSES[:2], None, r"labels \(2,\) .* do not fit embeddings \(3, 2\)"),
        ("supcon", Z, None, None, "supcon needs class labels; found: None"),
        ("supcon", Z, CLASSES.float(), None, "integers"),
        ("supcon", Z, [0, 1, 2], None, "supcon needs class labels as a tensor; found: list"),
        ("supcon", Z, CLASSES[:, None], None, r"integers \(B,\); found: \(3, 1\)"),
        ("supcon", Z, ROWS, None, r"class labels .* LabelRows \(3, 2\)"),
        ("supcon", Z, torch.tensor([-2, 0, 1]), None, "found: -2"),
        ("simclr", Z, None, None, "simclr needs sample_ids"),
        ("simclr", Z, None, CLASSES[:2], r"sample_ids \(2,\) .* do not fit embeddings \(3, 2\)"),
        ("simclr", Z, None, CLASSES.float(), "sample_ids must be integers"),
        ("himulcon", Z, CLASSES, None, r"paths must be integers \(B, H\); found: \(3,\)"),
        ("himulcon", Z, torch.zeros(3, 0).long(), None, r"paths must be integers \(B, H\); found: \(3, 0\)"),
        ("himulcon", Z, torch.zeros(3, 128).long(), None, "paths have at most 127 levels; found: 128"),
        ("himulcon", Z, torch.zeros(3, 2), None, r"paths must be integers \(B, H\); found: \(3, 2\)"),
        (
            "hicone",
            Z,
            ROWS,
            None,
            r"\(B, H\) or LabelRows with levels; found: LabelRows \(3, 2\)",
        ),
        ("himulcone", Z, torch.tensor([[0, 0], [0, -2], [1, 1]]), None, "found: -2"),
        ("himulcon", Z, torch.tensor([[0, 0], [0, 1], [1, 1]]), torch.tensor([4, 4, 5]), "rows of sample 4"),
        ("any", Z, torch.zeros(3, 2, 2), None, r"\(B,\), \(B, L\) or LabelRows; found: \(3, 2, 2\)"),
        ("any", Z, torch.full((3, 2), 2), None, "0 or 1"),
        ("any", Z, torch.full((3, 2), torch.nan), None, "0 or 1"),
        ("any", Z, [[0], [1], [2]], None, "found: list"),
        ("any", Z, ROWS.take(torch.tensor([0])), None, r"LabelRows \(1, 2\) do not fit"),
        ("any", Z, CLASSES.float(), None, "integers"),
        ("jaccard", Z, torch.full((3, 2), -1.0), None, "ratings must be finite and 0"),
        ("jaccard", Z, torch.full((3, 2), torch.nan), None, "ratings must be finite"),
        ("jaccard", Z, CLASSES, None, r"ratings labels \(B, A\) or LabelRows; found: \(3,\)"),
        ("supcon", Z, CLASSES, torch.tensor([4, 5, 4]), "rows of sample 4 have different labels"),
        ("any", Z, ROWS, torch.tensor([4, 4, 5]), "rows of sample 4 have different labels"),
        ("jaccard", Z, torch.eye(3), torch.tensor([4, 4, 5]), "rows of sample 4"),
    ],
)
def test_bad_input_is_named(name, embeddings, labels, samples, message):
    with pytest.raises(ValueError, match=message):
        build_loss(name)(embeddings, labels, samples)


@pytest.mark.parametrize("row", [[0.6, 1.0], [True, False]])
def test_rows_of_labels_are_indices(row):
    with pytest.raises(ValueError, match=r"label indices must be integers; found: torch\.(float|bool)"):
        LabelRows.from_lists([[], row], 3)


def test_rows_of_labels_in_tensors_have_no_repeats():
    assert LabelRows.from_lists([torch.tensor([2, 1, 2])], 3).lists() == [[1, 2]]
    assert LabelRows.from_lists(torch.tensor([[0, 0], [2, 1]]), 3).lists() == [[0], [1, 2]]
    assert LabelRows.from_classes(torch.tensor([2, 0], dtype=torch.uint8), 3).lists() == [[2], [0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: LabelRows.from_classes(torch.tensor([0.5, 1.7]), 3),
            r"integers \(B,\); found: .* torch.float",
        ),
        (lambda: LabelRows.from_classes(torch.tensor([True]), 3), "found: .* torch.bool"),
        (lambda: LabelRows.from_classes(torch.tensor([[0], [1]]), 3), r"found: \(2, 1\)"),
        (lambda: LabelRows.from_classes(torch.tensor([0, -2]), 3), r"class index outside -1\.\.2"),
        (lambda: LabelRows.from_dense(torch.tensor([1, 0])), r"dense tensor \(B, L\); found: \(2,\)"),
        (lambda: LabelRows.from_dense(torch.eye(2).to_sparse()), "found: .* torch.sparse_coo"),
        (lambda: LabelRows.from_dense(torch.eye(2).numpy()), "found: ndarray"),
        (lambda: LabelRows.from_dense(-torch.eye(2)), "must be 0 or more"),
        (lambda: LabelRows.from_dense(torch.full((2, 2), math.nan)), "must be 0 or more"),
        (lambda: ROWS[0], r"row numbers \(N,\); found: numbers \(\)"),
    ],
)
def test_what_makes_no_label_rows_is_one_line(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_positive_weights_check_their_input():
    with pytest.raises(ValueError, match="needs multi_label labels"):
        positive_weights("any", None)
    with pytest.raises(ValueError, match="needs sample_ids"):
        positive_weights("simclr", None)
    with pytest.raises(ValueError, match="no option"):
        positive_weights("any", ROWS, dynamic=True)


def test_simclr_does_not_read_labels():
    z = torch.eye(4)
    loss, samples = build_loss("simclr"), torch.tensor([0, 0, 1, 1])
    assert loss(z, torch.arange(4), samples) == loss(z, None, samples)


@pytest.mark.parametrize("name", ["supcon", "any", "simdis"])
def test_sample_ids_decide_nothing(name, rows):
    loss = build_loss(name)
    assert loss(rows.z, rows.labels(name), rows.sample_ids()) == loss(rows.z, rows.labels(name))


def test_importing_the_losses_needs_torch_alone():
    code = (
        "import sys, mlcl.losses\n"
        "heavy = {'ray', 'mlflow', 'optuna', 'transformers', 'pydantic', 'pyarrow', 'torchvision'}\n"
        "heavy |= {'torch._dynamo'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("name", ["supcon", "mulsupcon", "jaccard", "himulcon"])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_sparse_tensor_of_labels_is_refused_with_what_to_give_instead(name, layout):
    sparse = torch.eye(3).to_sparse(layout=layout)
    for call in (lambda: build_loss(name)(Z, sparse), lambda: positive_weights(name, sparse)):
        with pytest.raises(TypeError, match=f"{name} takes no sparse tensor") as excinfo:
            call()
        assert str(layout) in str(excinfo.value)
        assert "LabelRows.from_dense(labels.to_dense())" in str(excinfo.value)


def positional(power: Annotated[float, Interval(0, 4)] = 1.0):
    return OverlapRule(lambda counts: counts.shared**power)


def without_default(*, power: Annotated[float, Interval(0, 4)]):
    return OverlapRule(lambda counts: counts.shared**power)


def without_bounds(*, power: float = 1.0):
    return OverlapRule(lambda counts: counts.shared**power)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (positional, r"option power of positional; found: power: .* = 1.0; allowed: \*, power=VALUE"),
        (without_default, "option power of without_default; found: no default; allowed: power=VALUE"),
        (
            without_bounds,
            "option power of without_bounds; found: .*float.*; allowed: Literal, bool, Annotated",
        ),
    ],
)
def test_a_declared_loss_has_options_with_names_defaults_and_bounds(rule, text):
    with pytest.raises(TypeError, match=text):
        overlap_loss("power", rule, summary="s", source="s")
