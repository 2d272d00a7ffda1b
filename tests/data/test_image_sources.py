"""Tests of the sources of public image sets, on small files in the original formats."""

import io
import json
import tarfile

import numpy as np
import pytest
from data.conftest import ANY, DistributionTestCase, images_of, png, rows_of, splits_of
from PIL import Image

from mlcl.data.sources import cifar, voc2007
from mlcl.data.sources import coco as coco_source
from mlcl.testing.sources import Wart


def labels_of(data, *spaces):
    """Returns a mapping from id to split and labels."""
    return {row_id: (row[0], *row[2:]) for row_id, row in rows_of(data, *spaces).items()}


def records(labels, seed):
    """Returns records in the binary format, and their pixels of shape (rows, 32, 32, 3)."""
    planes = np.random.default_rng(seed).integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    data = b"".join(
        bytes(row_labels) + image.tobytes() for row_labels, image in zip(labels, planes, strict=True)
    )
    return data, planes.transpose(0, 2, 3, 1)


CIFAR_LABELS = {"train": [(i % 3 // 2, i % 3) for i in range(60)], "test": [(1, 2), (0, 1)]}


class TestCifar100(DistributionTestCase):
    name = "cifar100"
    files = {
        **{
            f"set/{split}.bin": records(labels, n)[0]
            for n, (split, labels) in enumerate(CIFAR_LABELS.items())
        },
        "set/coarse_label_names.txt": "fish\ntrees\n",
        "set/fine_label_names.txt": "ray\nshark\noak_tree\n",
    }
    options = {**ANY, "validation": 0.2}
    counts = "found: train 60, test 2, coarse 2, fine 3; allowed: train 50,000"
    warts = (
        Wart({"set/test.bin": b"\0" * 100}, "test.bin: record 0 is cut off; found: 100; allowed: 3074"),
        Wart({"set/test.bin": records([(1, 2), (0, 1)], 0)[0][:-1]}, "test.bin: record 1 is cut off"),
        Wart(
            {"set/test.bin": records([(1, 2), (0, 3)], 0)[0]}, "key fine: unknown class at record 1; found: 3"
        ),
        Wart({"set/coarse_label_names.txt": "fish\nfish\n"}, "names.txt: names a class twice; found: fish"),
        Wart(
            {"set/train.bin": None, "set/train": b"a pickle"},
            "pickles: not opened), are missing; found: no tr",
        ),
    )

    def test_records_become_rows_with_both_levels(self, read):
        data = read()
        assert data.info.space("path").classes == ("ray", "shark", "oak_tree")
        names = ("fish", "trees"), ("ray", "shark", "oak_tree")
        rows = labels_of(data, "coarse", "fine")
        assert {row_id: row[1:] for row_id, row in rows.items()} == {
            f"{split}-{i:05d}": (names[0][coarse], names[1][fine])
            for split, label_pairs in CIFAR_LABELS.items()
            for i, (coarse, fine) in enumerate(label_pairs)
        }
        splits = {(row_id.partition("-")[0], row[0]) for row_id, row in rows.items()}
        assert splits == {("test", "test"), ("train", "train"), ("train", "validation")}
        pixels = {
            split: records(label_pairs, n)[1] for n, (split, label_pairs) in enumerate(CIFAR_LABELS.items())
        }
        for row_id, image in images_of(data).items():
            split, _, number = row_id.partition("-")
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(image))), pixels[split][int(number)])

    def test_the_split_follows_the_seed(self, read):
        first, repeat, other = (splits_of(read(seed=seed, validation=0.3)) for seed in (0, 0, 1))
        assert first == repeat
        assert first != other

    def test_without_a_path_the_archive_is_downloaded(self, read, given, monkeypatch, tmp_path):
        def fetch(urls, sha256, target):
            assert all(url.endswith("/cifar-100-binary.tar.gz") for url in urls)
            with tarfile.open(target, "w:gz") as file:
                file.add(given / "set", "cifar-100-binary")
            return target

        monkeypatch.setattr(cifar, "fetch", fetch)
        assert sum(read(path=None).info.rows.values()) == 62
        assert not list(tmp_path.rglob("*.tar.gz"))


class TestCifar10(DistributionTestCase):
    name = "cifar10"
    files = {
        "set/batches.meta.txt": "".join(f"c{i}\n" for i in range(10)) + "\n",
        "set/test_batch.bin": records([(3,)], 9)[0],
        **{f"set/data_batch_{n}.bin": records([(n,)] * 4, n)[0] for n in range(1, 6)},
    }
    options = {**ANY, "validation": 0.01}
    counts = "found: train 20, test 1"
    warts = (Wart({"set/batches.meta.txt": "ray\n"}, "unknown class at record 0"),)

    def test_the_archive_is_read_as_it_is(self, read, given, tmp_path):
        archive = tmp_path / "cifar-10-binary.tar.gz"
        with tarfile.open(archive, "w:gz") as file:
            file.add(given / "set", "cifar-10-batches-bin")
        rows = labels_of(read(path=archive))
        assert [rows[f"train-{i:05d}"][1] for i in range(20)] == [f"c{1 + i // 4}" for i in range(20)]
        assert rows["test-00000"] == ("test", "c3")


VOC = {
    "train": {"000012": {"car": 1, "dog": 0}, "000017": {"person": 1, "horse": 1}},
    "val": {"000005": {"chair": 1, "tvmonitor": 1}},
    "test": {f"{i:06d}": {"tvmonitor": 1} if i % 2 else {"aeroplane": -1} for i in range(100, 140)},
}
ROOT = "VOCdevkit/VOC2007"
MAIN = f"{ROOT}/ImageSets/Main"
CAR = f"{MAIN}/car_train.txt"


class TestVoc2007(DistributionTestCase):
    name = "voc2007"
    files = {
        **{f"{MAIN}/{part}.txt": "".join(f"{i}\n" for i in images) for part, images in VOC.items()},
        **{
            f"{MAIN}/{name}_{part}.txt": "".join(
                f"{i} {marks.get(name, -1):2d}\n" for i, marks in images.items()
            )
            for part, images in VOC.items()
            for name in voc2007.CLASSES
        },
        **{f"{ROOT}/JPEGImages/{i}.jpg": png(int(i)) for images in VOC.values() for i in images},
    }
    touched = (f"{MAIN}/car_val.txt",)
    added = f"{ROOT}/JPEGImages/1.jpg"
    counts = "found: train 2, val 1, test 40, labels a row 0"
    warts = (
        Wart({CAR: "000012  1\n\n000017  2\n"}, "unknown mark at line 3; found: 2; allowed: 1, -1, 0"),
        Wart({CAR: "000012  1 1\n"}, "car_train.txt: wrong number of fields at line 1"),
        Wart({CAR: "000012  1\n"}, "car_train.txt: lists other images than train.txt"),
        Wart({CAR: None}, "missing; found: no ImageSets/Main/car_train.txt"),
        Wart(
            {f"{MAIN}/val.txt": "000005\n000017\n"}, "val.txt: the image of line 2 is in train.txt too; found"
        ),
        Wart({f"{MAIN}/test.txt": None}, "VOCtest_06-Nov-2007.tar, University of Oxford) are missing"),
        Wart({f"{ROOT}/JPEGImages/000017.jpg": None}, "no JPEGImages/000017.jpg"),
    )

    @pytest.mark.parametrize(("difficult", "least"), [(False, 1), (True, 0)])
    def test_images_have_the_classes_that_are_present(self, read, difficult, least):
        data = read(difficult=difficult)
        splits = {"train": "train", "val": "validation", "test": "test"}
        assert labels_of(data) == {
            image: (splits[split], [name for name in sorted(marks) if marks[name] >= least])
            for split, images in VOC.items()
            for image, marks in images.items()
        }
        assert all(image == png(int(i)) for i, image in images_of(data).items())

    def test_the_split_of_the_paper_halves_the_test_set(self, read):
        split = splits_of(read(split="paper"))
        assert {i for i, name in split.items() if name == "train"} == {"000012", "000017", "000005"}
        assert [list(split.values()).count(name) for name in ("validation", "test")] == [20, 20]


def instances(images, boxes, categories=((90, "toothbrush"), (1, "person"), (13, "stop sign"))):
    tree = {
        "info": {"year": 2014},
        "images": [{"id": i, "file_name": name, "height": 8, "width": 12} for i, name in images.items()],
        "annotations": [
            {"id": n, "image_id": i, "category_id": c, "iscrowd": crowd, "segmentation": [[1.0, 2.0]]}
            for n, (i, c, crowd) in enumerate(boxes)
        ],
        "categories": [{"id": c, "name": name} for c, name in categories],
    }
    return json.dumps(tree)


COCO = {
    "train": (
        {i: f"COCO_train2014_{i:012d}.jpg" for i in range(9, 49)},
        [(9, 90, 0), (9, 1, 0), (9, 1, 0), *((i, (1, 13, 90)[i % 3], 0) for i in range(10, 40))],
    ),
    "val": ({i: f"COCO_val2014_{i:012d}.jpg" for i in range(50, 90)}, [(50, 13, 1)]),
}
OBJECTS = {1: "person", 13: "stop sign", 90: "toothbrush"}
PICTURES = {
    name: (part, sorted({OBJECTS[c] for image, c, _ in boxes if image == i}))
    for part, (images, boxes) in COCO.items()
    for i, name in images.items()
}
VAL = "annotations/instances_val2014.json"


class TestCoco(DistributionTestCase):
    name = "coco"
    files = {
        **{f"annotations/instances_{part}2014.json": instances(*content) for part, content in COCO.items()},
        **{f"{p}2014/{name}": png(i) for p, (images, _) in COCO.items() for i, name in images.items()},
        **{f"annotations/instances_{p}2017.json": instances({i: f"{i:012d}.jpg"}, [(i, 1, 0)])
           for p, i in (("train", 9), ("val", 139))},
        "train2017/000000000009.jpg": png(9),
        "val2017/000000000139.jpg": png(139),
    }  # fmt: skip
    touched = (VAL,)
    added = "train2014/1.jpg"
    counts = "found: train 40, val 40, classes 3, labels a row 0.4"
    warts = (
        Wart({"annotations/instances_train2017.json": None}, "trainval2017.zip of the COCO", {"year": 2017}),
        Wart({VAL: instances({1: "a.jpg"}, [(2, 1, 0)])}, "not listed; found: image 2, category 1"),
        Wart({VAL: "[]"}, "no COCO instances with images, annotations and categories; found: TypeError"),
        Wart({VAL: "[" * 100_000}, "not valid JSON; found: maximum recursion depth"),
        Wart({VAL: instances({50: "a.jpg"}, [], ((90, "person"), (1, "person")))}, "names a class twice"),
        Wart({VAL: instances({50: "a.jpg"}, [], ((90, "toothbrush"),))}, "other categories than train's"),
        Wart({VAL: instances({50: "../../secret.jpg"}, []), "../secret.jpg": b"x"}, "outside the folder"),
    )

    def test_images_have_the_classes_of_their_boxes(self, read):
        data = read(validation=0.3)
        assert data.info.space("objects").classes == tuple(OBJECTS.values())
        rows = labels_of(data)
        assert {i: row[1] for i, row in rows.items()} == {i: labels for i, (_, labels) in PICTURES.items()}
        assert {row[0] for i, row in rows.items() if PICTURES[i][0] == "train"} == {"train", "validation"}
        assert {row[0] for i, row in rows.items() if PICTURES[i][0] == "val"} == {"test"}
        assert all(image == png(int(i[-16:-4])) for i, image in images_of(data).items())

    def test_crowds_count_and_unlabelled_images_may_go(self, read):
        rows = labels_of(read(unlabelled="drop"))
        assert rows["COCO_val2014_000000000050.jpg"] == ("test", ["stop sign"])
        assert rows.keys() == {i for i, (_, labels) in PICTURES.items() if labels}

    def test_the_split_of_the_paper_halves_val_and_images_may_lie_below_images(self, read, given):
        (given / "images").mkdir()
        for folder in ("train2014", "val2014"):
            (given / folder).rename(given / "images" / folder)
        split = splits_of(read(split="paper"))
        assert {split_name for i, split_name in split.items() if PICTURES[i][0] == "train"} == {"train"}
        halves = [split_name for i, split_name in split.items() if PICTURES[i][0] == "val"]
        assert [halves.count(name) for name in ("validation", "test")] == [20, 20]

    def test_the_release_of_2017(self, read):
        rows = {"000000000009.jpg": ("train", ["person"]), "000000000139.jpg": ("test", ["person"])}
        assert labels_of(read(year=2017, validation=0.01)) == rows

    def test_outlines_are_forgotten_as_they_are_read(self, read, monkeypatch):
        trees = []
        parse = coco_source._parse
        monkeypatch.setattr(
            coco_source, "_parse", lambda tree, *arguments: trees.append(tree) or parse(tree, *arguments)
        )
        read()
        assert all(trees[index]["annotations"] for index in (0, 1))
        assert all("segmentation" not in box for tree in trees for box in tree["annotations"])


GARMENTS = {
    "img/Sheer_Pleated-Front_Blouse/img_00000001.jpg": ("Blouse", "train"),
    "img/Woven_Tee/img_00000002.jpg": ("Tee", "val"),
    "img/Maxi_Dress/img_00000001.jpg": ("Button-Down", "test"),
    "img/Maxi_Dress/img_00000002.jpg": ("Button-Down", "train"),
}
KINDS = {"Tee": "upper-body", "Blouse": "upper-body", "Jeans": "lower-body", "Button-Down": "full-body"}


def columns(header, rows):
    return f"{len(rows)}\n{header}\n" + "".join(f"{a:<70} {b}\n" for a, b in rows)


CLOTH, IMAGES = "Anno_coarse/list_category_cloth.txt", "Anno_coarse/list_category_img.txt"
PARTITION = "Eval/list_eval_partition.txt"
TYPES = list(dict.fromkeys(KINDS.values()))
NUMBERED = [(image, list(KINDS).index(kind) + 1) for image, (kind, _) in GARMENTS.items()]
LISTS = {
    CLOTH: columns("category_name category_type", [(k, TYPES.index(name) + 1) for k, name in KINDS.items()]),
    IMAGES: columns("image_name category_label", NUMBERED),
    PARTITION: columns("image_name evaluation_status", [(i, part) for i, (_, part) in GARMENTS.items()]),
}


def replaced(name, old, new, message):
    """Returns a `Wart`: a list in which one text is replaced, and the expected message."""
    assert old in LISTS[name]
    return Wart({name: LISTS[name].replace(old, new, 1)}, f"{name.rpartition('/')[2]}: {message}")


class TestDeepFashion(DistributionTestCase):
    name = "deepfashion"
    files = {**LISTS, **{f"Img/{image}": png(number) for number, image in enumerate(GARMENTS)}}
    touched = (PARTITION,)
    added = "Img/img/Woven_Tee/9.jpg"
    counts = "found: train 2, validation 1, test 1, categories 4; allowed: train 209,222"
    warts = (
        Wart({PARTITION: None}, "CUHK Multimedia Lab) are missing; found: no Eval/list_eval_partition.txt"),
        replaced(IMAGES, " 4\n", " 5\n", "not a number of the list at line 5; found: 5; allowed: 1 to 4"),
        replaced(CLOTH, " 2\n", " 4\n", "not a number of the list at line 5; found: 4; allowed: 1 to 3"),
        replaced(CLOTH, "4\n", "5\n", "not the number of rows at line 1; found: 5; allowed: 4"),
        replaced(CLOTH, "Blouse", "Tee", "listed twice at line 4; found: Tee"),
        replaced(PARTITION, "val\n", "dev2\n", "unknown split at line 4; found: dev2"),
        replaced(PARTITION, "train\n", "train\n\nx y z\n", "wrong number of fields at line 5"),
        replaced(PARTITION, "val\n", "val x\n", "wrong number of fields at line 4"),
        replaced(PARTITION, "Woven_Tee", "Woven_Top", "one list has an image that another lacks"),
    )

    def test_garments_have_a_type_and_a_category(self, read):
        data = read()
        assert data.info.space("category").classes == tuple(KINDS)
        assert data.info.space("path").levels == ("type", "category")
        splits = {"train": "train", "val": "validation", "test": "test"}
        garments = GARMENTS.items()
        assert labels_of(data) == {image: (splits[split], KINDS[k], k) for image, (k, split) in garments}
        assert images_of(data) == {image: png(number) for number, image in enumerate(GARMENTS)}

    def test_the_older_layout(self, read, given):
        (given / "Anno_coarse").rename(given / "Anno")
        (given / "Img" / "img").rename(given / "img")
        assert read().info.rows == {"train": 2, "validation": 1, "test": 1}


PHOTOS = {
    "actor/0001_2124494179.jpg": ("train", ["lake"]),
    "actor/0002_174174086.jpg": ("train", []),
    "lake/0001_174174087.jpg": ("test", ["airport", "person"]),
    "zebra/0007_2124494179.jpg": ("train", ["lake"]),
} | {
    f"zebra/{i:04d}_{i}.jpg": ("train" if i % 2 else "test", [("airport", "lake", "person")[i % 3]])
    for i in range(100, 140)
}
CONCEPTS = ("airport", "lake", "person")
TRAIN, TEST = "ImageList/TrainImagelist.txt", "ImageList/TestImagelist.txt"
LAKE = "Groundtruth/AllLabels/Labels_lake.txt"
GONE = dict.fromkeys(["Flickr/actor/0001_2124494179.jpg", "Flickr/zebra/0100_100.jpg"])


def listed(*parts):
    return "".join(f"{i}\r\n".replace("/", "\\") for i, (part, _) in PHOTOS.items() if part in parts)


class TestNusWide(DistributionTestCase):
    name = "nuswide"
    files = {
        "ImageList/Imagelist.txt": listed("train", "test"),
        TRAIN: listed("train"),
        TEST: listed("test"),
        "Concepts81.txt": "".join(f"{concept}\n" for concept in CONCEPTS),
        **{
            f"Groundtruth/AllLabels/Labels_{c}.txt": "".join(
                f"{c in tags:d}\n" for _, tags in PHOTOS.values()
            )
            for c in CONCEPTS
        },
        "Groundtruth/TrainTestLabels/Labels_lake_Train.txt": "-1130179\n",
        **{f"Flickr/{image}": png(number) for number, image in enumerate(PHOTOS)},
    }
    touched = (LAKE,)
    added = "Flickr/lake/9999_1.jpg"
    counts = "found: images 44, train 23, test 21, concepts 3, labelled 43"
    warts = (
        Wart({LAKE: "1\n0\n"}, "Labels_lake.txt: not one line an image; found: 2; allowed: 44"),
        Wart({LAKE: "-1130179\n" * 44}, "Labels_lake.txt: line 1 is no label; found: -1130179"),
        Wart({"Concepts81.txt": "x" * 1_000}, "no Groundtruth/AllLabels/Labels_xxx"),
        Wart({TEST: listed("test", "train")}, "TestImagelist.txt: 23 images are in ImageList/TrainImagelist"),
        Wart({TEST: ""}, "21 images are neither in ImageList/TrainImagelist.txt nor in"),
        Wart({TEST: None}, "University of Singapore) are missing; found: no ImageList/TestImagelist.txt"),
        Wart(
            GONE, "2 of 43 images have no file; missing=skip leaves them out; found: no actor/0001_2124494179"
        ),
    )

    @pytest.mark.parametrize("unlabelled", ["drop", "keep"])
    def test_photos_have_concepts_and_those_without_may_go(self, read, unlabelled):
        data = read(validation=0.3, unlabelled=unlabelled)
        assert data.info.space("concepts").classes == CONCEPTS
        rows = labels_of(data)
        assert {i: row[1] for i, row in rows.items()} == {
            i: labels for i, (_, labels) in PHOTOS.items() if labels or unlabelled == "keep"
        }
        assert {row[0] for i, row in rows.items() if PHOTOS[i][0] == "train"} == {"train", "validation"}
        assert {row[0] for i, row in rows.items() if PHOTOS[i][0] == "test"} == {"test"}
        number = {image: number for number, image in enumerate(PHOTOS)}
        assert all(image == png(number[i]) for i, image in images_of(data).items())

    def test_the_split_of_the_paper_keeps_a_photo_together(self, read):
        for seed in range(5):
            split = splits_of(read(seed=seed, split="paper"))
            assert split["actor/0001_2124494179.jpg"] == split["zebra/0007_2124494179.jpg"]
            assert set(split.values()) == {"train", "validation", "test"}

    def test_missing_images_may_be_left_out_and_concepts_lie_elsewhere(self, read, given):
        (given / "ConceptsList").mkdir()
        (given / "Concepts81.txt").rename(given / "ConceptsList" / "Concepts81.txt")
        rows = labels_of(read(GONE, missing="skip"))
        assert len(rows) == 41
        assert "zebra/0100_100.jpg" not in rows
