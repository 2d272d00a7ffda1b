"""Tests that the sections in docs/encoders.md load, and that the page names every encoder."""

import re

import pytest
import yaml
from pydantic import TypeAdapter

from mlcl.config.encoder_section import EncoderSection
from mlcl.models import ENCODERS


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs" / "encoders.md").read_text()


def test_every_section_loads(page):
    blocks = re.findall(r"```yaml\n(.+?)```", page, re.DOTALL)
    section = TypeAdapter(EncoderSection).validate_python
    encoders = [section(yaml.safe_load(block)["encoder"]) for block in blocks]
    names = {"features", "resnet50", "cnn_text", "ldgn", "transformer", "plm_icd"}
    assert {encoder.name for encoder in encoders} == names


def test_every_encoder_is_told_of(page):
    rows = re.search(r"(?:^\|.*\n)+", page, re.MULTILINE)[0].splitlines()[2:]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])} == set(ENCODERS)
