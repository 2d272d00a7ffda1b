"""Tests that the declaration of an encoder raises if its section and its `build` do not fit."""

from typing import Literal

import pytest
from torch import nn

from mlcl.config.encoder_section import EncoderConfig
from mlcl.errors import UserError
from mlcl.models import ENCODERS, Encoder


class Section(EncoderConfig):
    name: Literal["mine"]
    width: int = 3
    weights: str | None = None
    image_size: int = 8


def build(width, weights=None, labels=None):
    return nn.Linear(width, labels or 1)


def declared(build=build, **changes):
    fields = {"title": "mine", "section": Section, "modality": "image", **changes}
    return Encoder(name="mine", build=build, **fields)


def test_build_gets_what_it_names():
    encoder = declared()
    section = Section(name="mine", width=5)
    assert encoder.module(section, {"labels": 2, "vocabulary_size": None}).weight.shape == (2, 5)
    assert encoder.size(section) == 8
    assert encoder.needs("labels")
    assert not encoder.needs("vocabulary_size")


def test_a_data_set_that_cannot_give_what_build_asks_for():
    with pytest.raises(UserError, match="mine needs a data set with labels"):
        declared().module(Section(name="mine"), {"labels": None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"modality": "text"}, "texts need a tokenizer"), ({"tokenizer": "words"}, "images take none"),
     ({"modality": "text", "tokenizer": "words"}, "its section has no max_length, vocabulary"),
     ({"files": ("stem",)}, "its section has no stem"),
     ({"build": lambda width: nn.Linear(width, 1)}, "build takes no weights"),
     ({"build": lambda width, weights, depth: nn.Linear(1, 1)}, "nothing gives build its depth")],
)  # fmt: skip
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        declared(**changes)


def test_only_encoders_that_say_so_ask_for_a_label_graph():
    assert [name for name, encoder in ENCODERS.items() if encoder.needs("label_graph_LL")] == ["ldgn"]
    assert {name for name, encoder in ENCODERS.items() if encoder.label_wise} == {"ldgn", "plm_icd"}
