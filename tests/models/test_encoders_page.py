"""docs/encoders.md says what is: its sections load, and it names every encoder."""

import re

import pytest
import yaml
from pydantic import TypeAdapter

from mlcl.config.encoder_section import EncoderSection
from mlcl.models import ENCODERS


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs" / "encoders.md").read_text()


def sections():
    return {name: encoder.section for name, encoder in ENCODERS.items()}


def table(page, heading):
    """Cells of the rows of the first table behind a heading."""
    lines = page.partition(heading)[2].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_every_section_loads(page):
    blocks = re.findall(r"```yaml\n(.+?)```", page, re.DOTALL)
    loaded = [
        TypeAdapter(EncoderSection).validate_python(yaml.safe_load(block)["encoder"]) for block in blocks
    ]
    assert {encoder.name for encoder in loaded} == {
        "features",
        "resnet50",
        "cnn_text",
        "ldgn",
        "transformer",
        "plm_icd",
    }


def test_every_encoder_is_told_of(page):
    named = {name for row in table(page, "# Encoders") for name in re.findall(r"`(\w+)`", row[0])}
    assert named == set(sections())
