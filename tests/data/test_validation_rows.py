import io
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from mlcl.data import Dataset, hold_out, validation_rows
from mlcl.data.validation_rows import redraw_validation, redraws_validation
from mlcl.errors import UserError

TOPICS = 300


@pytest.fixture
def data(write, batch):
    """Returns a data set of 200 training, 40 validation and 60 test rows in classes of unequal size."""
    splits = ["train"] * 10 + ["validation"] * 2 + ["test"] * 3
    rows = range(TOPICS)
    columns = {
        "text": [f"text of {_letters(row)}" for row in rows],
        "split": [splits[row % 15] for row in rows],
        "topic": [row % 3 // 2 for row in rows],
        "detail": [row // 3 % 3 for row in rows],
        "tags": [[row % 4] for row in rows],
        "ratings": [[1, 2] for _ in rows],
        "row.group": [f"g{row // 15 // 2}-{splits[row % 15]}-{row % 15 // 2}" for row in rows],
    }
    return Dataset.open(write(columns, grouped=True, shard_rows=70))


def _letters(row):
    return " ".join("abcdefghij"[int(digit)] for digit in str(row))


def ids(data):
    return {name: data.split(name).ids for name in ("train", "validation", "test")}


def test_the_rows_are_as_many_disjoint_and_those_of_train_and_validation(data):
    before, after = ids(data), ids(redraw_validation(data, 1))
    assert {name: len(rows) for name, rows in after.items()} == {"train": 200, "validation": 40, "test": 60}
    assert set(after["train"]) | set(after["validation"]) == set(before["train"]) | set(before["validation"])
    assert not set(after["train"]) & set(after["validation"])
    assert len(set(after["validation"]) & set(before["validation"])) < 20
    assert after["test"] == before["test"]


def test_a_seed_draws_its_own_rows_and_once_where_there_is_a_cache(data, tmp_path, monkeypatch):
    cached_draws = [redraw_validation(data, seed, tmp_path / "cache") for seed in (1, 2)]
    uncached_draws = [redraw_validation(data, seed) for seed in (1, 2)]
    assert [(ids(redrawn), redrawn.info) for redrawn in cached_draws] == [
        (ids(redrawn), redrawn.info) for redrawn in uncached_draws
    ]
    assert ids(cached_draws[0])["validation"] != ids(cached_draws[1])["validation"]
    assert len({data_set.info.fingerprint for data_set in (data, *cached_draws)}) == 3
    monkeypatch.setattr(validation_rows, "stratify", lambda *_: pytest.fail("drawn again"))
    repeat = redraw_validation(data, 1, tmp_path / "cache")
    assert (ids(repeat), repeat.info) == (ids(cached_draws[0]), cached_draws[0].info)


def test_groups_and_copies_stay_whole(write, batch, data):
    redrawn_data = redraw_validation(data, 3)
    train, validation = (set(redrawn_data.split(name).groups()) for name in ("train", "validation"))
    assert not train & validation
    batch["text"] = [f"text {_letters(row // 2)}" for row in range(40)]
    redrawn_copies = redraw_validation(Dataset.open(write(batch, "copies")), 1)
    assert not set(redrawn_copies.split("train").texts()) & set(redrawn_copies.split("validation").texts())


def test_images_of_equal_pixels_stay_in_one_split(write_images, image_batch):
    copies = {"id": [f"b{i}" for i in range(20)], "image": [_bmp(image) for image in image_batch["image"]]}
    columns = {name: values + copies.get(name, values) for name, values in image_batch.items()}
    redrawn_data = redraw_validation(Dataset.open(write_images(columns)), 1)
    names = {name: {row_id[1:] for row_id in row_ids} for name, row_ids in ids(redrawn_data).items()}
    assert len(names["validation"]) == 4
    assert not names["train"] & names["validation"]


def _bmp(image):
    with io.BytesIO() as file:
        Image.open(io.BytesIO(image)).save(file, "BMP")
        return file.getvalue()


def test_rows_that_all_stay_together_leave_no_validation(write, batch):
    data = Dataset.open(write(batch | {"row.group": ["one"] * 40}, grouped=True))
    with pytest.raises(UserError, match=r"key data\.validation_seed: no validation row is left: .*found: 1"):
        redraw_validation(data, 1)


def test_classes_are_stratified_and_labels_stay_with_their_rows(data):
    redrawn_data = redraw_validation(data, 4)
    counts = np.bincount(redrawn_data.split("validation").labels("topic"))
    assert abs(counts - np.array([40 * 2 / 3, 40 / 3])).max() <= 3
    for name in ("train", "validation"):
        rows = [int(row_id[1:]) for row_id in redrawn_data.split(name).ids]
        assert redrawn_data.split(name).labels("detail").tolist() == [row // 3 % 3 for row in rows]
    assert Counter(redrawn_data.split("train").labels("detail").tolist()).keys() == {0, 1, 2}


def test_classes_are_held_out_of_the_rows_that_were_drawn(data):
    redrawn_data = redraw_validation(data, 1)
    reduced_data = hold_out(redrawn_data, "tags", 0.5, 0)
    for name in ("train", "validation"):
        assert set(reduced_data.split(name).ids) < set(redrawn_data.split(name).ids)
        assert set(reduced_data.unseen(name).ids) | set(reduced_data.split(name).ids) == set(
            redrawn_data.split(name).ids
        )
    assert reduced_data.info.fingerprint != hold_out(data, "tags", 0.5, 0).info.fingerprint


def test_caches_tell_drawn_rows_apart_and_share_the_test_split(data):
    redrawn_data = redraw_validation(data, 1)
    is_same = {
        name: data.split(name).fingerprint == redrawn_data.split(name).fingerprint for name in ids(data)
    }
    assert is_same == {"train": False, "validation": False, "test": True}


@pytest.mark.parametrize(
    ("rows", "wanted"), [((1_000, 999), True), ((5_000, 1_000), False), ((90, 99), False)]
)
def test_few_validation_rows_are_drawn_anew_where_train_has_as_many(data, rows, wanted):
    info = data.info.model_copy(update={"rows": dict(zip(("train", "validation"), rows, strict=True))})
    assert redraws_validation(Dataset(data.reader.with_info(info))) is wanted
