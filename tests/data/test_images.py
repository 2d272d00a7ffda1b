import io
import struct
import zlib

import numpy as np
import pytest
import torch
from data.conftest import png
from PIL import Image

from mlcl.data import Dataset, decode_all, images
from mlcl.data.images import decode
from mlcl.errors import UserError


def encoded(image, kind="PNG", **options):
    with io.BytesIO() as file:
        image.save(file, kind, **options)
        return file.getvalue()


def test_an_image_of_the_size_keeps_its_pixels():
    data = png(0, (16, 16))
    assert np.array_equal(decode(data, 16), np.asarray(Image.open(io.BytesIO(data))).transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["L", "LA", "P", "1", "RGBA", "CMYK", "I;16", "I", "F"])
def test_every_mode_becomes_rgb_but_those_of_more_than_eight_bits(mode):
    is_wide, image = mode in ("I;16", "I", "F"), Image.new(mode, (20, 10))
    data = encoded(image, "TIFF" if is_wide or mode == "CMYK" else "PNG")
    if not is_wide:
        pixels = decode(data, 8)
        assert (pixels.shape, pixels.dtype) == ((3, 8, 8), np.uint8)
        return
    with pytest.raises(ValueError, match=f"mode {mode}: more than 8 bits a channel"):
        decode(data, 4)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_what_is_transparent_is_white(mode):
    image = Image.new("RGBA", (16, 16), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 16, 8))
    pixels = decode(encoded(image.convert(mode), "TIFF" if mode == "PA" else "PNG"), 16)
    assert (pixels[:, :8].max(), pixels[:, 8:].min()) == (0, 255)


def test_a_colour_of_a_palette_may_be_transparent():
    image = Image.new("P", (16, 16))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.paste(1, (0, 0, 16, 8))
    red, green, blue = decode(encoded(image, "PNG", transparency=0), 16)
    assert (red[:8].max(), blue[:8].min()) == (0, 255)
    assert (red[8:].min(), green[8:].min(), blue[8:].min()) == (255, 255, 255)


def test_the_centre_of_a_wide_image_is_kept_and_a_camera_on_its_side_is_set_upright():
    image = Image.new("RGB", (48, 16))
    image.paste((0, 255, 0), (16, 0, 32, 16))
    assert decode(encoded(image), 16)[1].min() == 255
    image = Image.new("RGB", (16, 16))
    image.paste((255, 0, 0), (0, 0, 16, 8))
    exif = Image.Exif()
    exif[0x0112] = 3
    red = decode(encoded(image, "PNG", exif=exif.tobytes()), 16)[0]
    assert red[:8].max() == 0
    assert red[8:].min() == 255


def test_a_wide_image_may_be_kept_whole():
    image = Image.new("RGB", (48, 16))
    image.paste((255, 0, 0), (0, 0, 12, 16))
    image.paste((0, 255, 0), (36, 0, 48, 16))
    red, green, blue = decode(encoded(image, "PNG"), 16, stretch=True)
    assert (red[:, :3].min(), green[:, -3:].min(), blue.max()) == (255, 255, 0)
    assert decode(encoded(image, "PNG"), 16).max() == 0


def test_a_decompression_bomb_is_refused_before_it_is_decoded(monkeypatch):
    monkeypatch.setattr(images, "MAX_PIXELS", 10_000)
    monkeypatch.setattr(Image.Image, "convert", lambda *_: pytest.fail("decoded"))
    with pytest.raises(ValueError, match="200 x 100 pixels"):
        decode(encoded(Image.new("1", (200, 100))), 8)


def test_lazy_images_come_in_order_from_any_shard(write_images, image_batch, monkeypatch):
    from mlcl.data import columns, writer

    monkeypatch.setitem(writer.GROUP_ROWS, "image", 2)
    data = Dataset.open(write_images(image_batch, shard_rows=5))
    split = data.split("train")
    column = split.images()
    pairs = zip(image_batch["image"], image_batch["split"], strict=True)
    expected = [image for image, name in pairs if name == "train"]
    assert list(column) == expected
    assert column[3:6] == expected[3:6]
    assert column[-1] == expected[-1]
    assert list(split.take(torch.tensor([11, 0, 4])).images()) == [expected[11], expected[0], expected[4]]
    assert column._load_group.cache_info().currsize <= columns.ROW_GROUPS_KEPT


def test_texts_of_images_are_refused(write_images, image_batch, text_set):
    with pytest.raises(UserError, match="has no texts; found: image"):
        Dataset.open(write_images(image_batch)).split("train").texts()
    with pytest.raises(UserError, match="has no images; found: text"):
        Dataset.open(text_set).split("train").images()


def test_images_are_decoded_once_and_mapped(write_images, image_batch, tmp_path, monkeypatch):
    split = Dataset.open(write_images(image_batch)).split("train")
    rows = decode_all(split, 8, tmp_path / "cache")
    assert rows.pixels.shape == (12, 3, 8, 8)
    assert np.array_equal(rows.pixels[4], decode(split.images()[4], 8))
    batch = rows.batch(torch.tensor([4, 4, 0]))["pixels"]
    assert batch.dtype == torch.uint8
    assert torch.equal(batch[0], torch.from_numpy(rows.pixels[4].copy()))

    monkeypatch.setattr(images, "decode", lambda *_: pytest.fail("decoded again"))
    assert isinstance(decode_all(split, 8, tmp_path / "cache").pixels, np.memmap)
    monkeypatch.undo()
    assert decode_all(split, 9, tmp_path / "cache").pixels.shape == (12, 3, 9, 9)
    stretched_rows = decode_all(split, 8, tmp_path / "cache", stretch=True)
    assert np.array_equal(stretched_rows.pixels[4], decode(split.images()[4], 8, stretch=True))
    assert len(decode_all(split.take(torch.tensor([1])), 8, tmp_path / "cache")) == 1


def test_images_are_kept_on_the_disk_of_the_machine(write_images, image_batch, tmp_path, monkeypatch):
    monkeypatch.setenv("MLCL_SCRATCH", str(tmp_path / "scratch"))
    split = Dataset.open(write_images(image_batch)).split("train")
    pixels = decode_all(split, 8, tmp_path / "cache").pixels
    assert [file.suffix for file in (tmp_path / "scratch" / "images").glob("[!.]*")] == [".npy"]
    assert not (tmp_path / "cache").exists()
    monkeypatch.delenv("MLCL_SCRATCH")
    assert np.array_equal(decode_all(split, 8, tmp_path / "cache").pixels, pixels)


def test_a_corrupt_image_is_named_and_leaves_no_cache(write_images, image_batch, tmp_path):
    image_batch["image"][6] = image_batch["image"][6][:60]
    split = Dataset.open(write_images(image_batch)).split("train")
    with pytest.raises(UserError, match=r"cannot be decoded at row 4, id i6") as error:
        decode_all(split, 8, tmp_path / "cache")
    assert error.value.file.endswith("train-00000.parquet")
    assert list((tmp_path / "cache" / "images").glob("[!.]*")) == []


def test_colours_of_sixteen_bits_are_refused():
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + struct.pack(">6H", *[4095] * 6) for _ in range(2))
    header = struct.pack(">2I5B", 2, 2, 16, 2, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
    with pytest.raises(ValueError, match="mode RGB: more than 8 bits a channel"):
        decode(png, 2)
