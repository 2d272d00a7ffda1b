import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

from mlcl.data import SOURCES, Dataset
from mlcl.data.sources import cifar, voc2007
from mlcl.data.sources import coco as coco_source
from mlcl.data.validation import check
from mlcl.errors import UserError
from mlcl.testing.sources import SourceTestCase, Wart


@pytest.fixture
def root(tmp_path):
    return tmp_path / "given"


@pytest.fixture
def put(root):
    def put(name, content):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return put


@pytest.fixture
def write(root, tmp_path):
    """Writes a source's data set, checks it, and opens it."""

    def write(name, split_seed=0, **options):
        source = SOURCES[name]
        settings = source.options(**{"path": root, "check_counts": False, **options})
        assert source.state(settings)
        folder = tmp_path / f"set-{len(list(tmp_path.iterdir()))}"
        source.write(folder, settings, split_seed)
        check(folder)
        return Dataset.open(folder)

    return write


def rows_of(data, *spaces):
    """Id to split and labels, over all splits."""
    rows = {}
    for split in data.info.rows:
        part = data.split(split)
        labels = [part.labels(space) for space in spaces]
        labels = [own.tolist() if hasattr(own, "tolist") else own.lists() for own in labels]
        rows |= {row_id: (split, *own) for row_id, *own in zip(part.ids, *labels, strict=True)}
    return rows


def images_of(data):
    return {i: image for split in data.info.rows for i, image in _images(data.split(split))}


def _images(part):
    return zip(part.ids, part.images(), strict=True)


# CIFAR


def records(rows, labels, seed):
    """Records of the binary version, and their pixels (rows, 32, 32, 3)."""
    planes = np.random.default_rng(seed).integers(0, 256, (rows, 3, 32, 32), dtype=np.uint8)
    data = b"".join(bytes(own) + image.tobytes() for own, image in zip(labels, planes, strict=True))
    return data, planes.transpose(0, 2, 3, 1)


@pytest.fixture
def cifar100(put):
    labels = {"train": [(i % 3 // 2, i % 3) for i in range(60)], "test": [(1, 2), (0, 1)]}
    pixels = {}
    for number, (split, own) in enumerate(labels.items()):
        data, pixels[split] = records(len(own), own, number)
        put(f"cifar-100-binary/{split}.bin", data)
    put("cifar-100-binary/coarse_label_names.txt", "fish\ntrees\n")
    put("cifar-100-binary/fine_label_names.txt", "ray\nshark\noak_tree\n")
    return labels, pixels


def test_cifar100(cifar100, write):
    labels, pixels = cifar100
    data = write("cifar100", validation=0.2)
    assert data.info.space("coarse").classes == ("fish", "trees")
    assert data.info.space("path").classes == ("ray", "shark", "oak_tree")
    rows = rows_of(data, "coarse", "fine", "path")
    expected = {f"{split}-{i:05d}": own for split in labels for i, own in enumerate(labels[split])}
    assert {i: tuple(row[1:3]) for i, row in rows.items()} == expected
    assert all(row[3] == [row[1], row[2]] for row in rows.values())
    assert {row[0] for i, row in rows.items() if i.startswith("test")} == {"test"}
    assert {row[0] for i, row in rows.items() if i.startswith("train")} == {"train", "validation"}
    for row_id, image in images_of(data).items():
        split, _, number = row_id.partition("-")
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(image))), pixels[split][int(number)])


def test_cifar_splits_follow_the_seed(cifar100, write):
    first, again, other = (rows_of(write("cifar100", seed, validation=0.3), "fine") for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_cifar10_from_the_archive(put, root, write, tmp_path):
    for number in range(1, 6):
        put(f"cifar-10-batches-bin/data_batch_{number}.bin", records(4, [(number,)] * 4, number)[0])
    put("cifar-10-batches-bin/test_batch.bin", records(1, [(3,)], 9)[0])
    put("cifar-10-batches-bin/batches.meta.txt", "".join(f"c{i}\n" for i in range(10)) + "\n")
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as file:
        file.add(root / "cifar-10-batches-bin", "cifar-10-batches-bin")
    data = write("cifar10", path=tmp_path / "cifar-10-binary.tar.gz", validation=0.01)
    assert data.info.space("class").classes == tuple(f"c{i}" for i in range(10))
    rows = rows_of(data, "class")
    assert [rows[f"train-{i:05d}"][1] for i in range(20)] == [1 + i // 4 for i in range(20)]
    assert rows["test-00000"] == ("test", 3)


def test_cifar_counts_are_compared(cifar100, write, tmp_path):
    with pytest.raises(UserError, match="found: train 60, test 2, coarse 2, fine 3; allowed: train 50,000"):
        write("cifar100", check_counts=True)
    assert not list(tmp_path.glob("set*"))


def test_cifar_wrong_records(cifar100, put, write):
    put("cifar-100-binary/test.bin", records(2, [(1, 2), (0, 3)], 0)[0])
    with pytest.raises(
        UserError, match=r"test.bin, key fine: unknown class at record 1; found: 3; allowed: 0 to 2"
    ):
        write("cifar100")
    put("cifar-100-binary/test.bin", records(2, [(1, 2), (0, 1)], 0)[0][:-1])
    with pytest.raises(UserError, match=r"test.bin: record 1 is cut off; found: 3073; allowed: 3074"):
        write("cifar100")


@pytest.mark.parametrize(
    ("names", "found"), [("fish\nfish\n", "names a class twice; found: fish"), ("", "names no class")]
)
def test_cifar_wrong_class_names(cifar100, put, write, names, found):
    put("cifar-100-binary/coarse_label_names.txt", names)
    with pytest.raises(UserError, match=f"coarse_label_names.txt: {found}"):
        write("cifar100")


def test_cifar_python_version_is_not_opened(put, write):
    put("cifar-100-python/train", b"a pickle")
    with pytest.raises(UserError, match=r"the Python version is pickles: not opened.*no train.bin, test.bin"):
        write("cifar100")


def test_cifar_without_a_path_is_downloaded(cifar100, root, write, monkeypatch, tmp_path):
    def fetch(urls, sha256, target):
        assert all(url.endswith("/cifar-100-binary.tar.gz") for url in urls)
        with tarfile.open(target, "w:gz") as file:
            file.add(root / "cifar-100-binary", "cifar-100-binary")
        return target

    monkeypatch.setattr(cifar, "fetch", fetch)
    assert sum(write("cifar100", path=None).info.rows.values()) == 62
    assert not list(tmp_path.rglob("*.tar.gz"))


class TestCifar100(SourceTestCase):
    name = "cifar100"
    options = {"check_counts": False, "validation": 0.2}
    touched = ("cifar-100-binary/train.bin", "cifar-100-binary/fine_label_names.txt")
    warts = (
        Wart({"cifar-100-binary/test.bin": b"\0" * 100}, "test.bin: record 0 is cut off"),
        Wart({"cifar-100-binary/test.bin": None}, "files of CIFAR-100, binary version"),
        Wart({}, "not the published counts", {"check_counts": True}),
    )

    @pytest.fixture
    def given(self, cifar100, root):
        return root


class TestCifar10(SourceTestCase):
    name = "cifar10"
    files = {
        "batches.meta.txt": "ray\nshark\n",
        "test_batch.bin": records(4, [(i % 2,) for i in range(4)], 0)[0],
        **{f"data_batch_{n}.bin": records(12, [(i % 2,) for i in range(12)], n)[0] for n in range(1, 6)},
    }
    options = {"check_counts": False, "validation": 0.2}
    warts = (Wart({"batches.meta.txt": "ray\n"}, "unknown class at record 1"),)


# PASCAL VOC 2007

VOC = {
    "train": {"000012": {"car": 1, "dog": 0}, "000017": {"person": 1, "horse": 1}},
    "val": {"000005": {"chair": 1, "tvmonitor": 1}},
    "test": {f"{i:06d}": {"tvmonitor": 1} if i % 2 else {"aeroplane": -1} for i in range(100, 140)},
}


@pytest.fixture
def voc(put, make_png):
    for name, images in VOC.items():
        put(f"VOCdevkit/VOC2007/ImageSets/Main/{name}.txt", "".join(f"{i}\n" for i in images))
        for class_name in voc2007.CLASSES:
            lines = [f"{i} {marks.get(class_name, -1):2d}\n" for i, marks in images.items()]
            put(f"VOCdevkit/VOC2007/ImageSets/Main/{class_name}_{name}.txt", "".join(lines))
        for image in images:
            put(f"VOCdevkit/VOC2007/JPEGImages/{image}.jpg", make_png(int(image)))


def classes_of(marks, least):
    return [voc2007.CLASSES.index(name) for name in sorted(marks) if marks[name] >= least]


@pytest.mark.parametrize(("difficult", "least"), [(False, 1), (True, 0)])
def test_voc2007(voc, write, make_png, difficult, least):
    data = write("voc2007", difficult=difficult)
    names = {"train": "train", "val": "validation", "test": "test"}
    assert rows_of(data, "objects") == {
        image: (names[part], classes_of(marks, least)) for part in VOC for image, marks in VOC[part].items()
    }
    assert all(image == make_png(int(i)) for i, image in images_of(data).items())


def test_voc2007_split_of_the_paper(voc, write):
    rows = rows_of(write("voc2007", split="paper"), "objects")
    assert {i for i, row in rows.items() if row[0] == "train"} == {"000012", "000017", "000005"}
    halves = [row[0] for row in rows.values()]
    assert (halves.count("validation"), halves.count("test")) == (20, 20)


def test_voc2007_wrong_files(voc, put, write, root):
    main = root / "VOCdevkit" / "VOC2007" / "ImageSets" / "Main"
    for text, found in (
        ("000012  1\n\n000017  2\n", "car_train.txt: unknown mark at line 3; found: 2"),
        ("000012  1 1\n", "car_train.txt: wrong number of fields at line 1"),
        ("000012  1\n", "car_train.txt: lists other images than train.txt"),
    ):
        (main / "car_train.txt").write_text(text)
        with pytest.raises(UserError, match=found):
            write("voc2007")
    (main / "val.txt").write_text("000005\n000017\n")
    with pytest.raises(UserError, match=r"val.txt: the image of line 2 is in train.txt too; found: 000017"):
        write("voc2007")
    (main / "val.txt").write_text("000005\n")
    (main / "car_train.txt").unlink()
    with pytest.raises(UserError, match=r"missing.*no ImageSets/Main/car_train.txt"):
        write("voc2007")
    (main / "test.txt").unlink()
    with pytest.raises(UserError, match=r"VOCtest_06-Nov-2007.tar.*no ImageSets/Main/test.txt"):
        write("voc2007")


def test_voc2007_counts_and_images(voc, write, root, tmp_path):
    with pytest.raises(UserError, match="found: train 2, val 1, test 40, labels a row 0"):
        write("voc2007", check_counts=True)
    (root / "VOCdevkit" / "VOC2007" / "JPEGImages" / "000017.jpg").unlink()
    with pytest.raises(UserError, match=r"no JPEGImages/000017\.jpg"):
        write("voc2007")
    assert not list(tmp_path.glob("set*"))


class TestVoc2007(SourceTestCase):
    name = "voc2007"
    options = {"check_counts": False}
    touched = ("VOCdevkit/VOC2007/ImageSets/Main/car_val.txt",)
    warts = (Wart({}, "not the published counts", {"check_counts": True}),)

    @pytest.fixture
    def given(self, voc, root):
        return root

    def test_its_state_changes_with_an_image_that_is_added(self, source, given, settings, put):
        before = source.state(source.options(**settings))
        put("VOCdevkit/VOC2007/JPEGImages/1.jpg", b"another")
        assert source.state(source.options(**settings)) != before


# MS COCO


def instances(images, boxes):
    return {
        "info": {"year": 2014},
        "images": [{"id": i, "file_name": name, "height": 8, "width": 12} for i, name in images.items()],
        "annotations": [
            {"id": n, "image_id": i, "category_id": c, "iscrowd": crowd, "bbox": [0, 0, 1, 1]}
            for n, (i, c, crowd) in enumerate(boxes)
        ],
        "categories": [
            {"id": c, "name": n} for c, n in ((90, "toothbrush"), (1, "person"), (13, "stop sign"))
        ],
    }


@pytest.fixture
def coco(put, make_png):
    parts = {
        "train": (
            {i: f"COCO_train2014_{i:012d}.jpg" for i in range(9, 49)},
            [(9, 90, 0), (9, 1, 0), (9, 1, 0)],
        ),
        "val": ({i: f"COCO_val2014_{i:012d}.jpg" for i in range(50, 90)}, [(50, 13, 1)]),
    }
    parts["train"][1].extend((i, (1, 13, 90)[i % 3], 0) for i in range(10, 40))
    for part, (images, boxes) in parts.items():
        put(f"annotations/instances_{part}2014.json", json.dumps(instances(images, boxes)))
        for i, name in images.items():
            put(f"{part}2014/{name}", make_png(i))
    return {
        name: (part, sorted({(1, 13, 90).index(c) for image, c, _ in boxes if image == i}))
        for part, (images, boxes) in parts.items()
        for i, name in images.items()
    }


def test_coco(coco, write, make_png):
    data = write("coco", validation=0.3)
    assert data.info.space("objects").classes == ("person", "stop sign", "toothbrush")
    rows = rows_of(data, "objects")
    assert {i: row[1] for i, row in rows.items()} == {i: labels for i, (_, labels) in coco.items()}
    assert {row[0] for i, row in rows.items() if coco[i][0] == "train"} == {"train", "validation"}
    assert {row[0] for i, row in rows.items() if coco[i][0] == "val"} == {"test"}
    assert all(image == make_png(int(i[-16:-4])) for i, image in images_of(data).items())


def test_coco_crowds_count_and_unlabelled_rows_may_go(coco, write):
    rows = rows_of(write("coco", unlabelled="drop"), "objects")
    assert rows["COCO_val2014_000000000050.jpg"] == ("test", [1])
    assert rows.keys() == {i for i, (_, labels) in coco.items() if labels}


def test_coco_split_of_the_paper_and_images_folder(coco, write, root):
    (root / "images").mkdir()
    for part in ("train2014", "val2014"):
        (root / part).rename(root / "images" / part)
    rows = rows_of(write("coco", split="paper"), "objects")
    assert {row[0] for i, row in rows.items() if coco[i][0] == "train"} == {"train"}
    halves = [row[0] for i, row in rows.items() if coco[i][0] == "val"]
    assert (halves.count("validation"), halves.count("test")) == (20, 20)


def test_coco_2017_names(put, write, make_png):
    for part, i in (("train", 9), ("val", 139)):
        tree = instances({i: f"{i:012d}.jpg"}, [(i, 1, 0)])
        put(f"annotations/instances_{part}2017.json", json.dumps(tree))
        put(f"{part}2017/{i:012d}.jpg", make_png(i))
    rows = rows_of(write("coco", year=2017, validation=0.01), "objects")
    assert rows == {"000000000009.jpg": ("train", [0]), "000000000139.jpg": ("test", [0])}


def test_coco_wrong_files(coco, put, write):
    with pytest.raises(UserError, match=r"train 40, val 40, classes 3, labels a row 0\.4"):
        write("coco", check_counts=True)
    with pytest.raises(
        UserError, match=r"annotations_trainval2017.zip.*no annotations/instances_train2017.json"
    ):
        write("coco", year=2017)
    other, same_name = instances({50: "a.jpg"}, []), instances({50: "a.jpg"}, [])
    other["categories"].pop()
    same_name["categories"][0]["name"] = "person"
    for content, found in (
        (
            json.dumps(instances({1: "a.jpg"}, [(2, 1, 0)])),
            "instances_val2014.json: annotation 0 is of an image or a .*; found: image 2, category 1",
        ),
        ("[]", "no COCO instances.*TypeError"),
        ("{", "instances_val2014.json: not valid JSON"),
        ("[" * 100_000, "instances_val2014.json: not valid JSON; found: maximum recursion depth"),
        (json.dumps(same_name), "names a class twice; found: person"),
        (json.dumps(other), "other categories than train's"),
    ):
        put("annotations/instances_val2014.json", content)
        with pytest.raises(UserError, match=found):
            write("coco")


def test_coco_forgets_outlines_as_they_are_read(coco, root, write, monkeypatch):
    file = root / "annotations" / "instances_val2014.json"
    tree = json.loads(file.read_text())
    tree["annotations"][0]["segmentation"] = [[1.0, 2.0]]
    file.write_text(json.dumps(tree))
    seen = []
    parse = coco_source._parse
    monkeypatch.setattr(coco_source, "_parse", lambda tree, *more: seen.append(tree) or parse(tree, *more))
    assert rows_of(write("coco"), "objects")["COCO_val2014_000000000050.jpg"] == ("test", [1])
    assert "segmentation" not in seen[-1]["annotations"][0]


def test_coco_takes_no_image_from_elsewhere(coco, put, write, root):
    (root.parent / "secret.jpg").write_bytes(b"secret")
    tree = instances({50: "../../secret.jpg"}, [])
    put("annotations/instances_val2014.json", json.dumps(tree))
    with pytest.raises(UserError, match="outside the folder"):
        write("coco")


class TestCoco(SourceTestCase):
    name = "coco"
    options = {"check_counts": False}
    touched = ("annotations/instances_val2014.json",)
    warts = (Wart({"annotations/instances_val2014.json": "{"}, "instances_val2014.json: not valid JSON"),)

    @pytest.fixture
    def given(self, coco, root):
        return root

    def test_its_state_changes_with_an_image_that_is_added(self, source, given, settings, put):
        before = source.state(source.options(**settings))
        put("train2014/1.jpg", b"another")
        assert source.state(source.options(**settings)) != before


# DeepFashion

GARMENTS = {
    "img/Sheer_Pleated-Front_Blouse/img_00000001.jpg": (2, "train"),
    "img/Woven_Tee/img_00000002.jpg": (1, "val"),
    "img/Maxi_Dress/img_00000001.jpg": (4, "test"),
    "img/Maxi_Dress/img_00000002.jpg": (4, "train"),
}
CLOTH = "4\ncategory_name  category_type\nTee          1\nBlouse       1\nJeans        2\nButton-Down  3\n"


def columns(header, rows):
    return f"{len(rows)}\n{header}\n" + "".join(f"{a:<70} {b}\n" for a, b in rows)


@pytest.fixture
def deepfashion(put, make_png):
    put("Anno_coarse/list_category_cloth.txt", CLOTH)
    put(
        "Anno_coarse/list_category_img.txt",
        columns("image_name category_label", [(i, c) for i, (c, _) in GARMENTS.items()]),
    )
    put(
        "Eval/list_eval_partition.txt",
        columns("image_name evaluation_status", [(i, part) for i, (_, part) in GARMENTS.items()]),
    )
    for number, image in enumerate(GARMENTS):
        put(f"Img/{image}", make_png(number))


def test_deepfashion(deepfashion, write, make_png):
    data = write("deepfashion")
    assert data.info.space("category").classes == ("Tee", "Blouse", "Jeans", "Button-Down")
    assert data.info.space("path").levels == ("type", "category")
    types = (0, 0, 1, 2)
    names = {"train": "train", "val": "validation", "test": "test"}
    assert rows_of(data, "type", "category") == {
        image: (names[part], types[c - 1], c - 1) for image, (c, part) in GARMENTS.items()
    }
    assert images_of(data) == {image: make_png(number) for number, image in enumerate(GARMENTS)}


def test_deepfashion_in_the_older_layout(deepfashion, write, root):
    (root / "Anno_coarse").rename(root / "Anno")
    (root / "Img" / "img").rename(root / "img")
    assert write("deepfashion").info.rows == {"train": 2, "validation": 1, "test": 1}


@pytest.mark.parametrize(
    ("name", "old", "new", "found"),
    [
        (
            "Anno_coarse/list_category_img.txt",
            " 4\n",
            " 5\n",
            r"not a number .* at line 5; found: 5; allowed: 1 to 4",
        ),
        (
            "Anno_coarse/list_category_cloth.txt",
            "  2\n",
            "  4\n",
            r"not a number .* at line 5.*allowed: 1 to 3",
        ),
        (
            "Anno_coarse/list_category_cloth.txt",
            "4\n",
            "5\n",
            "not the number of rows at line 1; found: 5; allowed: 4",
        ),
        ("Eval/list_eval_partition.txt", "val\n", "dev2\n", "unknown split at line 4"),
        ("Eval/list_eval_partition.txt", "train\n", "train\n\nx y z\n", "wrong number of fields at line 5"),
        ("Anno_coarse/list_category_cloth.txt", "Blouse", "Tee", "listed twice at line 4; found: Tee"),
        ("Eval/list_eval_partition.txt", "val\n", "val x\n", "wrong number of fields at line 4"),
        (
            "Eval/list_eval_partition.txt",
            "Woven_Tee",
            "Woven_Top",
            "one list has an image that another lacks",
        ),
    ],
)
def test_deepfashion_wrong_lines(deepfashion, write, root, name, old, new, found):
    text = (root / name).read_text()
    assert old in text
    (root / name).write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=found) as error:
        write("deepfashion")
    assert error.value.file.endswith(name)


def test_deepfashion_counts_and_missing_files(deepfashion, write, root):
    with pytest.raises(
        UserError, match=r"train 2, validation 1, test 1, categories 4; allowed: train 209,222"
    ):
        write("deepfashion", check_counts=True)
    (root / "Eval" / "list_eval_partition.txt").unlink()
    with pytest.raises(UserError, match=r"CUHK.*no Eval/list_eval_partition.txt"):
        write("deepfashion")


class TestDeepFashion(SourceTestCase):
    name = "deepfashion"
    options = {"check_counts": False}
    touched = ("Eval/list_eval_partition.txt",)
    warts = (Wart({}, "not the published counts", {"check_counts": True}),)

    @pytest.fixture
    def given(self, deepfashion, root):
        return root

    def test_its_state_changes_with_an_image_that_is_added(self, source, given, settings, put):
        before = source.state(source.options(**settings))
        put("Img/img/Woven_Tee/9.jpg", b"another")
        assert source.state(source.options(**settings)) != before


# NUS-WIDE

PHOTOS = {
    "actor/0001_2124494179.jpg": ("train", [1]),
    "actor/0002_174174086.jpg": ("train", []),
    "lake/0001_174174087.jpg": ("test", [0, 2]),
    "zebra/0007_2124494179.jpg": ("train", [1]),
} | {f"zebra/{i:04d}_{i}.jpg": ("train" if i % 2 else "test", [i % 3]) for i in range(100, 140)}
CONCEPTS = ("airport", "lake", "person")


@pytest.fixture
def nuswide(put, make_png):
    lists = {"I": PHOTOS, "TrainI": [i for i, (part, _) in PHOTOS.items() if part == "train"]}
    lists["TestI"] = [i for i in PHOTOS if i not in lists["TrainI"]]
    for name, images in lists.items():
        text = "".join(f"{i}\r\n".replace("/", "\\") for i in images)
        put(f"ImageList/{name}magelist.txt", text)
    put("Concepts81.txt", "".join(f"{concept}\n" for concept in CONCEPTS))
    for index, concept in enumerate(CONCEPTS):
        marks = "".join(f"{int(index in labels)}\n" for _, labels in PHOTOS.values())
        put(f"Groundtruth/AllLabels/Labels_{concept}.txt", marks)
    put("Groundtruth/TrainTestLabels/Labels_lake_Train.txt", "-1130179\n")
    for number, image in enumerate(PHOTOS):
        put(f"Flickr/{image}", make_png(number))


def test_nuswide(nuswide, write, make_png):
    data = write("nuswide", validation=0.3)
    assert data.info.space("concepts").classes == CONCEPTS
    rows = rows_of(data, "concepts")
    assert {i: row[1] for i, row in rows.items()} == {
        i: labels for i, (_, labels) in PHOTOS.items() if labels
    }
    assert {row[0] for i, row in rows.items() if PHOTOS[i][0] == "train"} == {"train", "validation"}
    assert {row[0] for i, row in rows.items() if PHOTOS[i][0] == "test"} == {"test"}
    number = {image: number for number, image in enumerate(PHOTOS)}
    assert all(image == make_png(number[i]) for i, image in images_of(data).items())


def test_nuswide_unlabelled_rows_may_stay(nuswide, write):
    rows = rows_of(write("nuswide", unlabelled="keep"), "concepts")
    assert {i: row[1] for i, row in rows.items()} == {i: labels for i, (_, labels) in PHOTOS.items()}


def test_nuswide_split_of_the_paper_keeps_a_photo_together(nuswide, write):
    for seed in range(5):
        rows = rows_of(write("nuswide", seed, split="paper"), "concepts")
        assert rows["actor/0001_2124494179.jpg"] == rows["zebra/0007_2124494179.jpg"]
        assert {row[0] for row in rows.values()} == {"train", "validation", "test"}


def test_nuswide_missing_images(nuswide, write, root):
    for image in ("actor/0001_2124494179.jpg", "zebra/0100_100.jpg"):
        (root / "Flickr" / image).unlink()
    with pytest.raises(UserError, match=r"2 of 43 images have no file.*no actor/0001_2124494179.jpg"):
        write("nuswide")
    rows = rows_of(write("nuswide", missing="skip"), "concepts")
    assert len(rows) == 41
    assert "zebra/0100_100.jpg" not in rows


@pytest.mark.parametrize(
    ("text", "found"),
    [("1\n0\n", "not one line an image; found: 2; allowed: 44"), ("-1130179\n" * 44, "line 1 is no label")],
)
def test_nuswide_wrong_labels(nuswide, put, write, text, found):
    put("Groundtruth/AllLabels/Labels_lake.txt", text)
    with pytest.raises(UserError, match=f"Labels_lake.txt: {found}"):
        write("nuswide")


def test_nuswide_counts_lists_and_missing_files(nuswide, put, write, root):
    with pytest.raises(UserError, match="found: images 44, train 23, test 21, concepts 3, labelled 43"):
        write("nuswide", check_counts=True)
    (root / "ConceptsList").mkdir()
    (root / "Concepts81.txt").rename(root / "ConceptsList" / "Concepts81.txt")
    assert write("nuswide").info.space("concepts").classes == CONCEPTS
    put("Concepts81.txt", "lake\nlake\n")
    with pytest.raises(UserError, match=r"Concepts81.txt: names a class twice; found: lake"):
        write("nuswide")
    put("Concepts81.txt", "x" * 1_000)
    with pytest.raises(UserError, match="no Groundtruth/AllLabels/Labels_xxx"):
        write("nuswide")
    (root / "Concepts81.txt").unlink()
    both = [(root / "ImageList" / f"{name}Imagelist.txt").read_text() for name in ("Test", "Train")]
    put("ImageList/TestImagelist.txt", "".join(both))
    with pytest.raises(UserError, match=r"TestImagelist.txt: 23 images are in ImageList/TrainImagelist"):
        write("nuswide")
    put("ImageList/TestImagelist.txt", "")
    with pytest.raises(UserError, match=r"21 images are neither in ImageList/TrainImagelist\.txt nor in"):
        write("nuswide")
    (root / "ImageList" / "TestImagelist.txt").unlink()
    with pytest.raises(UserError, match=r"NUS-WIDE.*no ImageList/TestImagelist.txt"):
        write("nuswide")


class TestNusWide(SourceTestCase):
    name = "nuswide"
    options = {"check_counts": False}
    touched = ("Groundtruth/AllLabels/Labels_lake.txt",)
    warts = (Wart({}, "not the published counts", {"check_counts": True}),)

    @pytest.fixture
    def given(self, nuswide, root):
        return root

    def test_its_state_changes_with_an_image_that_is_added(self, source, given, settings, put):
        before = source.state(source.options(**settings))
        put("Flickr/lake/9999_1.jpg", b"another")
        assert source.state(source.options(**settings)) != before
