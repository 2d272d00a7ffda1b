"""Data sets: the format in which they are stored, the sources that write it, and the readers for training."""

from mlcl.data.columns import rating_classes
from mlcl.data.dataset import Dataset
from mlcl.data.format import DatasetInfo, LabelSpace
from mlcl.data.hierarchies import check_class_parents, class_parents
from mlcl.data.images import ImageRows, augment, decode_all, normalise
from mlcl.data.modifications import add_label_noise, hold_out, reached_by, subset
from mlcl.data.row_groups import class_tree
from mlcl.data.source import Source
from mlcl.data.sources import SOURCES, find_prepared, prepare
from mlcl.data.split import Split
from mlcl.data.tokens import (
    Tokenizer,
    TokenRows,
    encode,
    hugging_face_tokenizer,
    load_tokenizer,
    train_word_tokenizer,
)

__all__ = [
    "SOURCES",
    "Dataset",
    "DatasetInfo",
    "ImageRows",
    "LabelSpace",
    "Source",
    "Split",
    "TokenRows",
    "Tokenizer",
    "add_label_noise",
    "augment",
    "check_class_parents",
    "class_parents",
    "class_tree",
    "decode_all",
    "encode",
    "find_prepared",
    "hold_out",
    "hugging_face_tokenizer",
    "load_tokenizer",
    "normalise",
    "prepare",
    "rating_classes",
    "reached_by",
    "subset",
    "train_word_tokenizer",
]
