"""CIFAR-100 (Krizhevsky 2009), binary version: 50,000 train and 10,000 test images under 20 > 100 classes.

Files: `train.bin`, `test.bin`, `coarse_label_names.txt` and `fine_label_names.txt`, a folder or
`cifar-100-binary.tar.gz`. `common/cifar.py` has what it shares with CIFAR-10. MLCL, Table 1.
"""

from __future__ import annotations

from mlcl.data.sources.common.cifar import Cifar

COUNTS = {"train": 50_000, "test": 10_000, "coarse": 20, "fine": 100}
"""Published rows of each split, and classes."""
SOURCE = Cifar(
    name="cifar100",
    title="CIFAR-100",
    archive="cifar-100-binary.tar.gz",
    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    counts=COUNTS,
    splits={"train": ("train.bin",), "test": ("test.bin",)},
    spaces={"coarse": "coarse_label_names.txt", "fine": "fine_label_names.txt"},
    levels=("coarse", "fine"),
).source("CIFAR-100: images under 20 > 100 classes")
