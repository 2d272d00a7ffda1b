import io

import pytest
from data.conftest import png
from PIL import Image

from mlcl.data.format import LabelSpace
from mlcl.data.split_assignment import image_digest
from mlcl.data.validation import check

SPLITS = ["train"] * 6 + ["validation", "test"] * 2
WORDS = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmnrs"]


@pytest.fixture
def warnings(write):
    """Returns a function that checks texts with one class each in the space `it` and returns the warnings."""

    folders = []

    def warnings(texts, labels, classes=("sport", "news")):
        splits = [SPLITS[i % 10] for i in range(len(texts))]
        batch = {"text": texts, "split": splits, "it": labels}
        space = LabelSpace(kind="single", classes=classes)
        folders.append(write(batch, f"set{len(folders)}", label_spaces={"it": space}))
        return check(folders[-1]).warnings

    return warnings


def words(row):
    """Returns three words for a row; no two rows have the same three."""
    return f"{WORDS[row % 125]} {WORDS[row // 125]} {WORDS[row * 7 % 125]}"


def test_twins_are_counted_and_copies_are_none(warnings):
    texts = [words(row) for row in range(300)]
    for row in range(300):
        if SPLITS[row % 10] == "test" and row % 10 == 7:
            texts[row] = f"{words(row)} right hand 12"
            texts[row - 7] = f"{words(row)} LEFT, hand 3"
    (note,) = warnings(texts, [i % 2 for i in range(300)])
    assert note == "50 % of test rows have a twin in train: a text that is equal but for numbers or a side"
    texts = [texts[row - 7] if row % 10 == 7 else text for row, text in enumerate(texts)]
    assert warnings(texts, [i % 2 for i in range(300)]) == (
        "rows with the content of a training row: 30 of test",
    )


def test_few_twins_and_names_that_other_rows_have_too_are_not_told(warnings):
    texts = [f"{words(row)} {'left' if row == 0 else ''}" for row in range(3000)]
    texts[7] = f"{words(0)} right"
    assert not warnings(texts, [i % 2 for i in range(3000)])
    texts = [f"{words(row)} {'sport' if row % 3 == 0 or row % 5 == 0 else ''}" for row in range(300)]
    assert not warnings(texts, [0 if i % 3 == 0 else 1 for i in range(300)])


def test_texts_that_name_their_class_are_told(warnings):
    texts = [f"{words(row)} {'Sport: it' if row % 3 == 0 else 'sports'} {words(row)}" for row in range(300)]
    (note,) = warnings(texts, [0 if i % 3 == 0 else 1 for i in range(300)])
    assert note == "it: texts name their class: sport is in 100 % of its rows and 0 % of the others"


def test_names_of_several_words_and_marks_are_found(warnings):
    classes = ("ice_cream", "rec.sport.hockey", "c")
    phrases = ("with ice cream", "of rec sport, hockey", "a c b")
    texts = [f"{words(row)} {phrases[row % 3]}" for row in range(300)]
    (note,) = warnings(texts, [i % 3 for i in range(300)], classes)
    assert "ice_cream is in 100 %" in note
    assert "rec.sport.hockey is in 100 %" in note
    assert " c " not in note


def test_of_many_leaks_three_are_shown(warnings):
    classes = tuple(f"name{word}" for word in WORDS[:5])
    texts = [f"{words(row)} {classes[row // 10 % 5]}" for row in range(300)]
    (note,) = warnings(texts, [i // 10 % 5 for i in range(300)], classes)
    assert note.endswith("(and 2 more)")


def test_images_of_equal_pixels_are_copies_whatever_the_file(write_images, image_batch):
    with Image.open(io.BytesIO(image_batch["image"][0])) as image, io.BytesIO() as file:
        image.save(file, "BMP")
        image_batch["image"][4] = file.getvalue()
    image_batch["image"][3] = image_batch["image"][1]
    messages = check(write_images(image_batch)).warnings
    assert "rows with the content of a training row: 1 of validation, 1 of test" in messages


def test_digests_are_of_pixels_and_size_or_of_bytes_that_cannot_be_decoded():
    assert image_digest(b"no image") == image_digest(b"no image") != image_digest(b"another")
    assert image_digest(png(0)) != image_digest(png(1))
    digests = set()
    for size in ((2, 8), (8, 2)):
        with io.BytesIO() as file:
            Image.new("RGB", size).save(file, "PNG")
            digests.add(image_digest(file.getvalue()))
    assert len(digests) == 2
