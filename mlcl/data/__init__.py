"""Data sets: one format, sources that write it, and what training reads from it."""

from mlcl.data.class_parents import check_class_parents, class_parents
from mlcl.data.class_tree import class_tree
from mlcl.data.columns import rating_classes
from mlcl.data.dataset import Dataset
from mlcl.data.format import DatasetInfo, LabelSpace
from mlcl.data.hold_out import hold_out
from mlcl.data.images import ImageRows, decode_all
from mlcl.data.noise import add_label_noise, reached_by
from mlcl.data.preparation import prepare
from mlcl.data.sampler import Balanced, EpochSampler, Grouped
from mlcl.data.source import Source
from mlcl.data.sources import SOURCES
from mlcl.data.split import Split
from mlcl.data.subset import subset
from mlcl.data.tokens import (
    Tokenizer,
    TokenRows,
    encode,
    hugging_face_tokenizer,
    load_tokenizer,
    train_word_tokenizer,
)
from mlcl.data.views import augment, normalise

__all__ = [
    "SOURCES",
    "Balanced",
    "Dataset",
    "DatasetInfo",
    "EpochSampler",
    "Grouped",
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
