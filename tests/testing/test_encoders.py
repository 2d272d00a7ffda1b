"""Every built-in encoder passes the suite of plugin authors, and so does one that comes from outside."""

import sys
from importlib import import_module

import pytest
import yaml

from mlcl.errors import UserError
from mlcl.models import ENCODERS
from mlcl.testing.encoders import CPU, EncoderTestCase
from mlcl.training.experiment import run_experiment
from mlcl.training.export import load_model, write_export
from mlcl.training.job_data import JobData

LORA = "lora: {r: 2, alpha: 4, dropout: 0.1}"
SMALL = {
    "cnn_text": "{name: cnn_text, width: 4, embedding_dim: 8, kernel_sizes: [2, 5], max_length: 4}",
    "cnn_image": "{name: cnn_image, width: 4, blocks: 2, image_size: 8}",
    "resnet18": "{name: resnet18, image_size: 32, stem: imagenet}",
    "resnet50": "{name: resnet50, image_size: 8}",
    "transformer": "{name: transformer, model: =bert, pooling: cls, max_length: 8}",
    "transformer-lora": "{name: transformer, model: =llama, pooling: last, max_length: 8, weights: bf16, "
    f"gradient_checkpointing: true, {LORA}}}",
    "plm_icd": "{name: plm_icd, model: =roberta, max_length: 12, chunk_length: 8, dropout: 0.1}",
    "plm_icd-lora": "{name: plm_icd, model: =roberta, max_length: 12, chunk_length: 8, weights: bf16, "
    f"gradient_checkpointing: true, {LORA}}}",
    "ldgn": "{name: ldgn, width: 4, embedding_dim: 8, max_length: 8}",
}
"""Small settings, in more than one way for some. An encoder without any is tested with its defaults."""
LARGE = {"resnet50"}
"""Declared as resnet18 is, with weights that take seconds to write."""
CASES = [
    pytest.param(case, marks=[pytest.mark.slow] if case in LARGE else [])
    for case in (*SMALL, *(name for name in ENCODERS if name not in SMALL))
]


@pytest.fixture
def models(tmp_path_factory):
    from tiny_models import KINDS, tiny_model  # skips where transformers is not installed

    return {kind: tiny_model(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


class TestEveryEncoder(EncoderTestCase):
    @pytest.fixture(params=CASES)
    def section(self, request):
        text = SMALL.get(request.param, f"{{name: {request.param}}}")
        if "=" in text:
            for kind, folder in request.getfixturevalue("models").items():
                text = text.replace(f"={kind}", str(folder))
        return yaml.safe_load(text)


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
"""A new encoder: one file, and nothing else is edited."""


@pytest.fixture(scope="module")
def mean_of_words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "mean_of_words.py").write_text(MINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        assert ENCODERS.add(import_module("mean_of_words"), "mean_of_words.py") == ["mean_of_words"]
        yield
        ENCODERS.remove("mean_of_words.py")
        del sys.modules["mean_of_words"]


@pytest.mark.usefixtures("mean_of_words")
class TestNewEncoder(EncoderTestCase):
    @pytest.fixture
    def section(self):
        return {"name": "mean_of_words", "width": 6}

    def test_it_predicts(self, make_job, tmp_path):
        job_data = JobData.of(make_job(epochs=30, lr=0.05), tmp_path / "home")
        folder = tmp_path / "run"
        run_experiment(job_data, folder=folder, context=CPU, listener=lambda _: None)
        write_export(tmp_path / "model", folder, job_data, {})
        predicted = load_model(tmp_path / "model").predict_proba(["ball", "vote noise3"])
        assert predicted[:, :3].argmax(1).tolist() == [0, 1]

    def test_its_keys_are_checked_as_those_of_any_other(self, make_job):
        for override, message in {
            "encoder.widht=3": r"encoder\.widht: unknown key; did you mean width\?",
            "encoder.width=0": r"encoder\.width: input should be greater than or equal to 1",
            "encoder.name=mean_of_word": r"_words' \(mean_of_words\.py\); did you mean mean_of_words\?",
        }.items():
            with pytest.raises(UserError, match=message):
                make_job(override)
