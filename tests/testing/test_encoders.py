"""Tests that every built-in encoder and an encoder from outside pass the test suite for plugin authors."""

import sys

import pytest

from mlcl.errors import UserError
from mlcl.models import ENCODERS
from mlcl.testing.encoders import CPU, EncoderTestCase
from mlcl.training.experiment import run_experiment
from mlcl.training.export import load_model, write_export
from mlcl.training.job_data import JobData

LORA = {"lora": {"r": 2, "alpha": 4, "dropout": 0.1}, "weights": "bf16", "gradient_checkpointing": True}
PLM_ICD = {"name": "plm_icd", "model": "=roberta", "max_length": 12, "chunk_length": 8, "dropout": 0.1}
SMALL = (
    {"name": "cnn_text", "width": 4, "embedding_dim": 8, "kernel_sizes": [2, 5], "max_length": 4},
    {"name": "cnn_image", "width": 4, "blocks": 2, "image_size": 8},
    {"name": "resnet18", "image_size": 32, "stem": "imagenet"},
    {"name": "resnet50", "image_size": 8},
    {"name": "transformer", "model": "=bert", "pooling": "cls", "max_length": 8},
    {"name": "transformer", "model": "=llama", "pooling": "last", "max_length": 8, **LORA},
    {"name": "transformer", "model": "=bert", "max_length": 8, "freeze": True},
    {"name": "transformer", "model": "=bert", "max_length": 8, "freeze": 1},
    PLM_ICD,
    {**PLM_ICD, **LORA},
    {"name": "ldgn", "width": 4, "embedding_dim": 8, "max_length": 8},
    {"name": "features", "inputs": ["tfidf"], "hidden": [6], "out": 4, "deep_columns": 9},
    {"name": "features", "inputs": ["column"], "out": 4, "wide": False},
    {"name": "features", "inputs": ["image"], "out": 4, "image": {"image_size": 4}},
)
"""Small settings of encoders. An encoder that is not listed is tested with its defaults."""
LARGE = {"resnet50"}
"""Encoders that differ from a tested one only in size, and whose weights take seconds to write."""


class TestEveryEncoder(EncoderTestCase):
    sections = tuple(
        pytest.param(section, marks=[pytest.mark.slow] if section["name"] in LARGE else [])
        for section in (
            *SMALL,
            *({"name": name} for name in ENCODERS if name not in {s["name"] for s in SMALL}),
        )
    )

    @pytest.fixture
    def section(self, written, request):
        """Returns a section in which a model such as `=bert` is replaced by the path of a tiny model."""
        kind = str(written.get("model", "")).removeprefix("=")
        return {**written, "model": str(request.getfixturevalue("models")[kind])} if kind else written


MINE = '''
from typing import Literal

from pydantic import Field
from torch import nn

from mlcl.config.encoder_section import EncoderConfig
from mlcl.models import Encoder


class Section(EncoderConfig):
    """Mean of the words' vectors."""

    name: Literal["mean_of_words"]
    width: int = Field(8, ge=1)
    vocabulary: int = 100
    max_length: int = 8


class MeanOfWords(nn.Module):
    def __init__(self, vocabulary_size, width):
        super().__init__()
        self.dim = width
        self.embedding = nn.Embedding(vocabulary_size, width)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask.unsqueeze(2)
        return (self.embedding(input_ids) * mask).sum(1) / mask.sum(1).clamp(min=1)


ENCODER = Encoder(
    name="mean_of_words",
    title="the mean of the words' vectors",
    section=Section,
    modality="text",
    build=MeanOfWords,
    tokenizer="words",
)
'''
"""The source of a new encoder, which consists of one file and needs no other change."""


@pytest.fixture(scope="module", autouse=True)
def plugins(tmp_path_factory):
    """Writes the encoder's module into a folder from which it can be imported."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "mean_of_words.py").write_text(MINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
        sys.modules.pop("mean_of_words", None)


class TestNewEncoder(EncoderTestCase):
    sections = ({"name": "mean_of_words", "width": 6},)
    modules = ("mean_of_words",)

    def test_it_predicts(self, make_job, tmp_path):
        job_data = JobData.of(make_job(epochs=30, lr=0.05), tmp_path / "home")
        folder = tmp_path / "run"
        run_experiment(job_data, folder=folder, context=CPU, listener=lambda _: None)
        write_export(tmp_path / "model", folder, job_data, {})
        probabilities = load_model(tmp_path / "model").predict_proba(["ball", "vote noise3"])
        assert probabilities[:, :3].argmax(1).tolist() == [0, 1]

    def test_its_keys_are_checked_as_those_of_any_other(self, make_job):
        for override, message in {
            "encoder.widht=3": r"encoder\.widht: unknown key; did you mean width\?",
            "encoder.width=0": r"encoder\.width: input should be greater than or equal to 1",
            "encoder.name=mean_of_word": r"did you mean mean_of_words\?.*mean_of_words \(a test\)",
        }.items():
            with pytest.raises(UserError, match=message):
                make_job(override)
