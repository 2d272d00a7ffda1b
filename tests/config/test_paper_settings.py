"""Compares each value of the jobs that name a paper with `paper_settings.yaml`, which names its source."""

import functools
import itertools
import re
from pathlib import Path

import pytest

from mlcl.config import load_job
from mlcl.config.job import dump_job, flatten
from mlcl.config.loader import read_job
from mlcl.config.safe_yaml import load_yaml

ROOT = Path(__file__).resolve().parents[2]
PAPERS = ("Similarity-Dissimilarity", "MLCL", "kNN-MLTC", "HiMulConE")
ENTRIES = load_yaml(Path(__file__).with_suffix("").with_name("paper_settings.yaml").read_text())
JOBS = sorted({job for entry in ENTRIES for job in entry["jobs"]})
NO_RESULT = {
    "experiment",
    "encoder.gradient_checkpointing",
    "evaluation.batch_size",
    "train.checkpoint_every",
    "train.micro_batch_size",
    "train.threads",
}
"""The keys that name a run or adapt it to a machine, and do not change results."""

# Changes of the job files that an audit made without a failing test, and one more value of each kind.
CHANGES = """
voc2007_simdis: objective.heads.labels.temperature=0.2 train.optimizer=adamw encoder.image_size=128
coco_simdis: objective.heads.labels.projection.dim=64 train.momentum=0.5
nuswide_simdis: train.precision=float32 train.views=1 train.workers=1 encoder.stretch=false
aapd_simdis_roberta: train.warmup=0.3 train.weight_decay=0.5 encoder.dropout=0.3 train.schedule=constant
aapd_simdis_llama: encoder.lora.r=4 encoder.lora.alpha=8 encoder.lora.dropout=0.0 encoder.weights=float32
mimic3_simdis_plm_icd: encoder.chunk_length=256 objective.classifier.weight=1
cifar100_mlcl: train.epochs=20 train.batch_size=32 objective.heads.superclass.weight=0.1 train.lr=0.05
deepfashion_mlcl: objective.heads.superclass.temperature=0.1 train.weight_decay=0.0
tripadvisor_mlcl: objective.heads.rooms.weight=0.01 train.epochs=3 train.lr=1e-4 train.optimizer=adamw
beeradvocate_mlcl: objective.heads.global.options.threshold=0.3 train.batch_size=32
beeradvocate_mlcl_noise: data.label_noise.rate=0.3 objective.heads.global.weight=0.5
aapd_knn_cnn: objective.heads.neighbours.temperature=1 objective.heads.neighbours.weight=0.5 train.lr=0.1
aapd_knn_ldgn: evaluation.knn.k=50 evaluation.knn.lambda=0.1 evaluation.knn.temperature=10
rcv1_knn_bert: train.patience=9 train.batch_size=512 objective.heads.neighbours.reduction=mean
icd10cm_knn: objective.heads.neighbours.temperature=1
"""


def one_by_one(tree):
    """Yields dotted keys and values; a part `a|b` of a key stands for the keys with a and with b."""
    for key, value in flatten(tree).items():
        for parts in itertools.product(*(part.split("|") for part in key.split("."))):
            yield ".".join(parts), value


@functools.cache
def settings(job):
    """Returns the values of a job in `paper_settings.yaml` by key. Fails if a key is in two entries."""
    values = {}
    for entry in ENTRIES:
        if job in entry["jobs"]:
            for key, value in one_by_one(entry["set"]):
                assert key not in values, f"{job}: {key} twice"
                values[key] = value
    return values


def differences(job, overrides=()):
    """Returns the keys of a job whose values differ from `paper_settings.yaml`, with both values."""
    resolved = flatten(dump_job(load_job(ROOT / "jobs" / f"{job}.yaml", overrides)))
    missing = object()
    return {
        key: (resolved.get(key, missing), value)
        for key, value in settings(job).items()
        if resolved.get(key, missing) != value
    }


def test_every_job_that_names_a_paper_is_covered():
    names = {
        file.stem
        for file in (ROOT / "jobs").glob("*.yaml")
        if any(re.search(rf"(?<![\w-]){paper}\b", file.read_text()) for paper in PAPERS)
    }
    assert names <= set(JOBS)
    assert set(JOBS) <= {file.stem for file in (ROOT / "jobs").glob("*.yaml")}


def test_every_entry_says_where_it_is_printed_or_why_it_is_ours():
    pattern = re.compile(rf"^({'|'.join(PAPERS)}), .*(section|appendix|supplement|table|Eq\.)")
    assert len(ENTRIES) > 50
    for entry in ENTRIES:
        assert entry.keys() in ({"paper", "jobs", "set"}, {"ours", "jobs", "set"}), entry
        assert "ours" in entry or pattern.match(entry["paper"]), entry["paper"]
        assert entry.get("ours", "said") != ""


@pytest.mark.parametrize("job", JOBS)
def test_a_job_has_the_values_of_its_paper_and_no_others(job):
    assert differences(job) == {}
    keys = flatten(read_job(ROOT / "jobs" / f"{job}.yaml").tree).keys() - NO_RESULT
    assert keys <= settings(job).keys()


@pytest.mark.parametrize("line", CHANGES.strip().splitlines())
def test_a_changed_value_is_found(line):
    job, _, changes = line.partition(": ")
    assert changes
    for change in changes.split():
        assert differences(job, [change]).keys() == {change.partition("=")[0]}
