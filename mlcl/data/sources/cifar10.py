"""CIFAR-10 (Krizhevsky 2009), binary version: 50,000 train and 10,000 test images of 10 classes.

Files: `data_batch_1.bin` to `data_batch_5.bin`, `test_batch.bin` and `batches.meta.txt`, a folder or
`cifar-10-binary.tar.gz`. `common/cifar.py` has what it shares with CIFAR-100. MLCL transfers to it.
"""

from __future__ import annotations

from mlcl.data.sources.common.cifar import Cifar

COUNTS = {"train": 50_000, "test": 10_000, "class": 10}
"""Published rows of each split, and classes."""
SOURCE = Cifar(
    name="cifar10",
    title="CIFAR-10",
    archive="cifar-10-binary.tar.gz",
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    counts=COUNTS,
    splits={"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
    spaces={"class": "batches.meta.txt"},
).source("CIFAR-10: images of 10 classes")
