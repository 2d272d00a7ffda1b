import io

import numpy as np
import pytest
import torch
from PIL import Image

from mlcl.data import Dataset, prepare
from mlcl.data.row_groups import row_groups
from mlcl.data.sources.digits import SOURCE, Options
from mlcl.data.split_assignment import twin_form
from mlcl.data.validation import check
from mlcl.testing.sources import SourceTestCase, Wart


@pytest.fixture(scope="module")
def icd(tmp_path_factory):
    return prepare("icd10cm", tmp_path_factory.mktemp("home"))


def test_icd10cm_has_every_diagnosis_under_its_section(icd):
    info = Dataset.open(icd).info
    assert sum(info.rows.values()) == 46_881
    assert [info.space(name).n_classes for name in ("chapter", "section", "category")] == [22, 297, 1918]
    assert info.space("path").levels == ("chapter", "section")
    assert info.space("full_path").levels == ("chapter", "section", "category")
    assert info.fingerprint == "360d445907ba2373"
    twins = "45.3 % of validation and 43.6 % of test rows have a twin in train"
    assert check(icd).warnings == (
        "section: no row has C00-C96, C00-C75, M00-M25 and 9 more",
        "rows with the content of a training row: 1 of validation",
        f"{twins}: a text that is equal but for numbers or a side",
    )


def test_diagnoses_are_grouped_by_category_as_their_source_declares(icd):
    test = Dataset.open(icd).split("test")
    categories, group_numbers = [code[:3] for code in test.ids], {}
    assert row_groups(test).tolist() == [
        group_numbers.setdefault(name, len(group_numbers)) for name in categories
    ]
    assert 500 < len(group_numbers) < len(test)


def test_icd10cm_can_keep_twins_together(tmp_path):
    folder = prepare("icd10cm", tmp_path, {"twins": "together"})
    assert not [note for note in check(folder).warnings if "twin" in note or "content of" in note]
    texts = {
        name: set(map(twin_form, Dataset.open(folder).split(name).texts())) for name in ("train", "test")
    }
    assert not texts["train"] & texts["test"]


def test_icd10cm_labels_agree_with_the_package(icd):
    import simple_icd_10_cm as package

    split = Dataset.open(icd).split("validation")
    names = {level: split.info.space(level).classes for level in ("chapter", "section", "category")}
    labels = {level: split.labels(level).tolist() for level in names}
    texts = split.texts()
    for row, code in enumerate(split.ids[:300]):
        # A section with the same name as its category occurs twice among the ancestors.
        ancestors = package.get_ancestors(code)
        assert ancestors[-1] == names["chapter"][labels["chapter"][row]]
        assert ancestors[-2] == names["section"][labels["section"][row]]
        assert [code, *ancestors][-3] == names["category"][labels["category"][row]]
        assert texts[row] == package.get_description(code)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return prepare("digits", tmp_path_factory.mktemp("home"), {"scenes": 400})


def test_digits_are_scenes_of_one_to_three(scenes):
    assert check(scenes).rows == {"train": 320, "validation": 40, "test": 40}
    train = Dataset.open(scenes).split("train")
    assert set(train.labels("digits").counts().tolist()) == {1, 2, 3}
    assert torch.bincount(train.labels("digits").columns, minlength=10).min() > 20
    image = Image.open(io.BytesIO(train.images()[0]))
    assert (image.size, image.mode, image.format) == ((32, 32), "L", "PNG")
    assert np.asarray(image).max() > 150


def test_digits_of_held_out_scenes_are_in_no_training_scene(tmp_path, monkeypatch):
    from mlcl.data.sources import digits

    pools = {}
    original = digits._draw_scene

    def scene(pixels, target, pool, size, rng):
        pools.setdefault(tuple(pool.tolist()), None)
        return original(pixels, target, pool, size, rng)

    monkeypatch.setattr(digits, "_draw_scene", scene)
    SOURCE.write(tmp_path / "digits", Options(scenes=100), 0)
    train, validation, test = map(set, pools)
    assert not train & validation | train & test | validation & test
    assert len(train | validation | test) == 1797


def test_digits_follow_size_and_seed(tmp_path):
    first, other = (SOURCE.write(tmp_path / str(seed), Options(scenes=100, size=48), seed) for seed in (0, 1))
    assert first.fingerprint != other.fingerprint
    image = Dataset.open(tmp_path / "0").split("train").images()[0]
    assert Image.open(io.BytesIO(image)).size == (48, 48)


class TestIcd10cm(SourceTestCase):
    name = "icd10cm"
    warts = (Wart({}, "unknown key", {"section": "A00-A09"}),)


class TestDigits(SourceTestCase):
    name = "digits"
    options = {"scenes": 100}
    warts = (Wart({}, "data.options.scenes", {"scenes": 5}),)


class TestScenes(SourceTestCase):
    name = "scenes"
    options = {"scenes": 100}
    warts = (
        Wart({}, "data.options.scenes", {"scenes": 5}),
        Wart({}, "data.options.mix", {"mix": "sorted"}),
        Wart({}, "must add up to 1", {"mix": {"disjoint": 0.9, "equal": 0.2, "overlap": 0.0, "nested": 0.0}}),
        Wart({}, "equally frequent", {"mix": {"disjoint": 0.1, "equal": 0.8, "overlap": 0.1, "nested": 0.0}}),
    )
