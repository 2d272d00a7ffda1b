import os

import pytest
from data.conftest import png
from PIL import Image

from mlcl.data import Dataset, prepare
from mlcl.errors import UserError
from mlcl.testing.sources import SourceTestCase, Wart


@pytest.fixture
def tree(tmp_path):
    def tree(*places):
        for number, place in enumerate(places):
            file = tmp_path / "photos" / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(png(number))
        return tmp_path / "photos"

    return tree


@pytest.fixture
def opened(tmp_path):
    return lambda root, **options: Dataset.open(
        prepare("image_folder", tmp_path / "home", {"path": str(root), **options})
    )


def test_folders_are_classes(tree, opened):
    data = opened(tree(*(f"{kind}/{i}.png" for kind in ("cat", "dog") for i in range(20))))
    assert data.info.label_spaces["class"].classes == ("cat", "dog")
    assert sum(data.info.rows.values()) == 40
    train = data.split("train")
    assert set(train.labels("class").tolist()) == {0, 1}
    names = [("cat", "dog")[c] for c in train.labels("class").tolist()]
    assert [row_id.partition("/")[0] for row_id in train.ids] == names
    number = {f"{kind}/{i}.png": 20 * k + i for k, kind in enumerate(("cat", "dog")) for i in range(20)}
    assert train.images()[3] == png(number[train.ids[3]])


def test_nested_folders_are_a_hierarchy(tree, opened):
    data = opened(tree("pet/cat/1.png", "pet/other/1.png", "wild/other/1.png"), fractions=[1, 0, 0])
    assert data.info.space("fine").classes == ("pet/cat", "pet/other", "wild/other")
    assert data.info.space("path").levels == ("coarse", "fine")
    assert data.split("train").labels("path").tolist() == [[0, 0], [0, 1], [1, 2]]


def test_copies_lie_in_one_split_and_are_counted(tree, opened):
    root = tree(*(f"{kind}/{i}.png" for kind in ("cat", "dog") for i in range(40)))
    for kind in ("cat", "dog"):
        for i in range(0, 40, 2):
            (root / kind / f"{i}-again.png").write_bytes((root / kind / f"{i}.png").read_bytes())
            with Image.open(root / kind / f"{i}.png") as image:
                image.save(root / kind / f"{i}-lossless.bmp")
    data = opened(root)
    split = {id: name for name in data.info.rows for id in data.split(name).ids}
    assert all(
        split[f"{kind}/{i}.png"] == split[f"{kind}/{i}-again.png"] == split[f"{kind}/{i}-lossless.bmp"]
        for kind in ("cat", "dog")
        for i in range(0, 40, 2)
    )
    assert len(set(split.values())) == 3
    assert "rows with the content of another row, which lie in one split with it: 120" in data.info.notes


@pytest.mark.parametrize(
    ("folders", "classes", "rows"),
    [("train/a train/b val/a test/b", "a b", {"train": 40, "validation": 20, "test": 20}),
     ("Training/a Training/b Testing/a", "a b", {"test": 20}),
     ("TRAIN/a TRAIN/b eval/b", "a b", {"validation": 20}),
     ("train/a train/b dev/b eval/a", "a b", {"train": 40, "validation": 20}),
     ("train/train/a train/train/b dev/dev/b eval/eval/a", "a b", {"train": 40, "validation": 20}),
     ("seg_train/a seg_train/b seg_test/b", "a b", {"test": 20}),
     ("train2017/a train2017/b val2017/b", "a b", {"validation": 20}),
     ("bus train", "bus train", {})],
)  # fmt: skip
def test_split_folders_have_any_usual_name_and_classes_may_have_it_too(tree, opened, folders, classes, rows):
    data = opened(tree(*(f"{folder}/{i}.png" for folder in folders.split() for i in range(20))))
    assert data.info.label_spaces["class"].classes == tuple(classes.split())
    assert data.info.rows.keys() == {"train", "validation", "test"}
    assert data.info.rows.items() >= rows.items()
    assert sum(data.info.rows.values()) == 20 * len(folders.split())
    assert all("test" in id.lower() for id in data.split("test").ids) == ("test" in rows)


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("cat", "Cat", "cat, Cat"),
        ("pet/cat", "pet/Cat", "pet/cat, pet/Cat"),
        ("pet/cat", "Pet/cat", "pet, Pet"),
    ],
)
def test_a_class_in_two_spellings_is_refused_unless_a_split_has_both(tree, opened, one, other, found):
    places = (f"train/{one}", f"train/wild{one[3:]}", f"val/{other}")
    root = tree(*(f"{place}/{i}.png" for place in places for i in range(9)))
    with pytest.raises(UserError, match=rf"photos: a class is spelt in two ways; found: {found}; a"):
        opened(root, allow_untrained=True)
    tree(*(f"train/{other}/{i}.png" for i in range(9)))
    assert opened(root).info.rows["validation"] == 9


def test_every_class_is_trained(tree, opened):
    assert opened(tree(*(f"c{i}/only.png" for i in range(30)))).info.rows == {"train": 30}


class TestImageFolder(SourceTestCase):
    name = "image_folder"
    files = {f"{kind}/{i}.png": png(i) for kind in ("cat", "dog") for i in range(20)}
    warts = (
        Wart({"cat/0.png": b"no image"}, "id cat/0.png"),
        Wart({"dog/small/0.png": png(0)}, "dog/small/0.png: every image must lie equally deep"),
        Wart({f"{kind}/{i}.png": None for kind in ("cat", "dog") for i in range(20)}, "no image files"),
    )


def test_a_folder_of_images_in_each_class_is_no_level(tree, opened):
    data = opened(tree(*(f"train/{kind}/images/{i}.png" for kind in ("cat", "dog") for i in range(9))))
    assert {name: space.classes for name, space in data.info.label_spaces.items()} == {
        "class": ("cat", "dog")
    }


@pytest.mark.parametrize("fractions", [[0.5, 0.5, 0.5], [0, 0.5, 0.5]])
def test_fractions_that_do_not_add_up_or_leave_train_empty_are_refused(tree, opened, fractions):
    with pytest.raises(UserError, match="fractions must add up to 1, with some for train") as error:
        opened(tree("cat/1.png", "dog/1.png"), fractions=fractions)
    assert error.value.key == "data.options.fractions"


def test_links_to_folders_and_to_nothing_are_refused(tree, opened, tmp_path):
    root = tree(*(f"{kind}/{i}.png" for kind in ("cat", "dog") for i in range(9)))
    (root / "bird").symlink_to(root / "cat", target_is_directory=True)
    with pytest.raises(UserError, match=r"bird: a link to a folder, or to nothing, is not followed"):
        opened(root)
    (root / "bird").unlink()
    (root / "cat" / "x.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(UserError, match=r"x.png: a link to a folder, or to nothing"):
        opened(root)
    (root / "cat" / "x.png").rename(root / "cat" / ".x.png")
    assert sum(opened(root).info.rows.values()) == 18


@pytest.mark.parametrize("place", [b"cat/K\xe4se.png", b"K\xe4se/1.png"])
def test_a_name_that_is_not_utf_8_is_refused(tree, opened, place):
    root = tree("cat/1.png", "dog/1.png", os.fsdecode(place))
    with pytest.raises(UserError, match=r"a name that is not UTF-8; found: 'K\\udce4se") as error:
        opened(root)
    assert error.value.line().isascii()


def test_a_class_may_begin_with_underscores(tree, opened):
    data = opened(tree(*(f"{kind}/{i}.png" for kind in ("__background__", "dog") for i in range(9))))
    assert data.info.label_spaces["class"].classes == ("__background__", "dog")
