"""docs/encoders.md says what is: its sections load, and its jobs have the encoders that it tells of."""

import re

import pytest
import yaml
from pydantic import TypeAdapter

from mlcl.config import load_job
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


def test_every_key_of_a_transformer_is_told_of(page):
    told = {re.search(r"`(\w+)`", row[0])[1] for row in table(page, "## Transformers")}
    assert told | {"name"} == set(sections()["transformer"].model_fields)


OURS = ("icd10cm", "digits", "goemotions_himulcone")
"""How the names of jobs begin that are of no paper; so are those on frozen features."""
NAMES = {"BERT": "transformer", "RoBERTa": "transformer", "Llama": "transformer", "PLM-ICD": "plm_icd"} | {
    "CNN": "cnn_text",
    "LDGN": "ldgn",
    "ResNet-50": "resnet50",
}


def test_the_papers_jobs_have_these_encoders(page, root):
    encoder, told = None, set()
    for name, jobs, *_ in table(page, "## What the papers set"):
        encoder = NAMES[name] if name else encoder
        for job in re.findall(r"`(\w+)`", jobs):
            assert load_job(root / "jobs" / f"{job}.yaml").encoder.name == encoder, job
            told.add(job)
    papers = {f.stem for f in (root / "jobs").glob("*.yaml") if not f.stem.startswith(OURS)}
    papers = {job for job in papers if not job.endswith("_features")}
    assert told == {job for job in papers if not job.endswith("_noise")}
