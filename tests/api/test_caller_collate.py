"""Tests a user's collate functions: the batches that a module gets, refusals, and exported models."""

import subprocess
import sys
import threading

import pytest
import torch
from builders import job_tree, shades, text_dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast

import mlcl
from mlcl.api.common import with_encoder
from mlcl.config import job_hash, load_job
from mlcl.data.images import load_upright, read_images
from mlcl.errors import UserError
from mlcl.models import ENCODERS
from mlcl.service.export_run import export_run
from mlcl.tracking import Tracker
from mlcl.training.job_data import JobData

pytestmark = pytest.mark.usefixtures("forgotten_plugin_files")
CODES = 128


class Characters(nn.Module):
    """Embeds a text as the sum of the vectors of its characters."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(CODES, 8)

    def forward(self, codes, held):
        return (self.table(codes) * held[..., None]).sum(1)


def characters(texts):
    max_length = max(map(len, texts))
    codes, mask = torch.zeros(len(texts), max_length, dtype=torch.int64), torch.zeros(len(texts), max_length)
    for row, text in enumerate(texts):
        codes[row, : len(text)] = torch.tensor([min(ord(sign), CODES - 1) for sign in text])
        mask[row, : len(text)] = 1
    return {"codes": codes, "held": mask}


class Corner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 4)

    def forward(self, pixels):
        return self.layer(pixels)


def corner(images):
    """Returns the red value of the first pixel, under the key that mlcl uses for its own images."""
    return {"pixels": torch.tensor([[image.getpixel((0, 0))[0] / 255] for image in images])}


@pytest.fixture
def texts(tmp_path):
    return job_tree(text_dataset(tmp_path / "data"), epochs=2)


@pytest.fixture
def images(tmp_path):
    tree = job_tree(shades(tmp_path / "data"), epochs=20, batch_size=8, lr=0.1)
    tree["objective"] = {"heads": {}, "classifier": {"loss": "cross_entropy", "labels": "kind"}}
    return tree | {"encoder": {"name": "cnn_image", "image_size": 8}}


def job_with(tree, home, encoder, collate):
    return load_job(tree, with_encoder(encoder, None, tree, None, home, lambda _: None, collate=collate))


@pytest.mark.parametrize("encoder", [Characters(), Characters])
def test_a_module_reads_the_texts_that_its_function_collates_also_in_another_process(
    texts, tmp_path, encoder
):
    home, model = tmp_path / "home", tmp_path / "model"
    report = mlcl.run(texts, home=home, encoder=encoder, collate=characters, progress=None)
    assert (report.state, "test/accuracy" in report.metrics) == ("COMPLETE", True)
    export_run(Tracker.open_existing(home), report.id, model)
    for file in home.glob("encoders/*"):
        file.unlink()
    inputs = ["ball noise1", "law", "a longer text of nothing"]
    labels = mlcl.load_model(model).predict(inputs).labels
    code = f"import mlcl; print(mlcl.load_model({str(model)!r}).predict({inputs!r}).labels)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == f"{labels}\n"
    with pytest.raises(UserError, match="no exact ONNX graph: a collate function computes its inputs"):
        export_run(Tracker.open_existing(home), report.id, tmp_path / "other", formats=["onnx"])


def test_images_come_as_pillow_has_them_and_their_tensors_are_not_changed(images, tmp_path):
    home = tmp_path / "home"
    report = mlcl.run(images, home=home, encoder=Corner, collate=corner, progress=None)
    assert (report.state, report.metrics["test/accuracy"]) == ("COMPLETE", 1.0)
    data = JobData.of(job_with(images, home, Corner, corner), home)
    rows, split, indices = data.encode(data.train), data.train, torch.tensor([5, 0, 2])
    contents = [split.images()[row] for row in indices.tolist()]
    expected = corner(list(read_images(contents, load_upright, None)))["pixels"]
    assert expected.flatten().tolist() == pytest.approx([230 / 255, 30 / 255, 30 / 255])
    assert torch.equal(rows.plain_inputs(indices, torch.device("cpu"))["pixels"], expected)
    views = rows.batch(indices, 2, torch.device("cpu")).inputs["pixels"]
    assert torch.equal(views, expected.repeat(2, 1))
    export_run(Tracker.open_existing(home), report.id, tmp_path / "model")
    model = mlcl.load_model(tmp_path / "model")
    assert model.predict([split.images()[0], split.images()[1]]).labels == ["dark", "bright"]
    with pytest.raises(UserError, match="image cannot be decoded at row 1; found: ValueError"):
        model.predict([split.images()[0], b"no image"])


def test_the_hash_of_a_job_tells_functions_apart(texts, tmp_path):
    def shifted(offset):
        return lambda texts: {**characters(texts), "codes": (characters(texts)["codes"] + offset) % CODES}

    functions = [characters, shifted(1), shifted(2), shifted(1)]
    hashes = [job_hash(job_with(texts, tmp_path, Characters, function)) for function in functions]
    assert hashes[1] == hashes[3]
    assert len(set(hashes)) == 3


def test_a_function_may_call_a_tokenizer(texts, tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "ball": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    hf_tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")

    def tokens(texts):
        batch = hf_tokenizer(texts, padding=True, truncation=True, max_length=4, return_tensors="pt")
        return {"codes": batch["input_ids"], "held": batch["attention_mask"]}

    job = job_with(texts, tmp_path, Characters, tokens)
    assert job_hash(job) == job_hash(job_with(texts, tmp_path, Characters, tokens))
    batch = ENCODERS[job.encoder.name].collate(["ball", "a ball of x and more"])
    assert batch["codes"].tolist() == [[2, 1, 1, 1], [0, 2, 0, 0]]


LOCK = threading.Lock()
BATCH = "a mapping of names to tensors on the CPU"


@pytest.mark.parametrize(
    ("collate", "problem"),
    [
        ("characters", "key collate: no function; found: str; allowed: a function of a list of texts"),
        (lambda texts: 1 / 0, f"key collate: fails with 2 rows; found: ZeroDivisionError: .*{BATCH}"),
        (
            lambda texts: texts,
            f"key collate: does not return a mapping of names to tensors; found: list; allowed: {BATCH}",
        ),
        (
            lambda texts: {},
            f"key collate: does not return a mapping of names to tensors; found: {{}}; allowed: {BATCH}",
        ),
        (
            lambda texts: {"codes": [1, 2]},
            f"does not return a mapping of names to tensors; found: 'codes': list; .*{BATCH}",
        ),
        (
            lambda texts: {0: torch.zeros(2)},
            "does not return a mapping of names to tensors; found: 0: Tensor",
        ),
        (lambda texts: {"codes": torch.zeros(3, 4)}, r"of no 2 rows; found: codes \(3, 4\) on cpu"),
        (lambda texts: {"codes": torch.zeros(2, 4)}, r"of no 1 rows; found: codes \(2, 4\) on cpu"),
        (lambda texts: {"codes": torch.tensor(2)}, r"of no 2 rows; found: codes \(\) on cpu"),
        (lambda texts: {"codes": torch.zeros(2, device="meta")}, r"found: codes \(2,\) on meta"),
        (
            lambda texts: {f"codes{len(texts)}": torch.zeros(len(texts))},
            "other names or types for 1 rows than for two examples; found: .*codes1.*; allowed: .*codes2",
        ),
        (lambda texts: {"ids": torch.zeros(len(texts), 4)}, r"forward of Characters fails with ids \(2, 4\)"),
        (
            lambda texts: LOCK and characters(texts),
            "key collate: cannot be hashed; found: TypeError: .*lock",
        ),
    ],
)
def test_a_function_that_makes_no_batches_is_refused_before_anything_starts(
    texts, tmp_path, collate, problem
):
    with pytest.raises(UserError, match=problem) as error:
        mlcl.run(texts, home=tmp_path / "home", encoder=Characters, collate=collate, progress=None)
    assert "\n" not in error.value.line()
    assert not (tmp_path / "home" / "runs").exists()


def test_other_names_for_a_later_batch_end_the_run_in_one_line(texts, tmp_path):
    def changing(texts):
        batch = characters(texts)
        return batch if len(texts) < 16 else {**batch, "more": batch["held"]}

    problem = "key collate: returns other names or types for 16 rows than for two examples; found: .*more"
    with pytest.raises(UserError, match=problem) as error:
        mlcl.run(texts, home=tmp_path / "home", encoder=Characters, collate=changing, progress=None)
    assert "\n" not in error.value.line()


def test_a_function_that_is_too_large_for_a_job_is_refused(texts, tmp_path):
    table = torch.rand(500_000)

    def from_table(texts):
        return {"codes": table[: len(texts)]}

    with pytest.raises(
        UserError, match=r"key collate: too large; found: .* characters, compressed; allowed: 1,048,576"
    ):
        mlcl.run(texts, home=tmp_path / "home", encoder=Characters, collate=from_table, progress=None)


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"encoder": Characters, "tokenizer": characters}, "key tokenizer"),
        ({}, "key encoder: no encoder; found: None"),
    ],
)
def test_a_function_needs_a_module_and_no_tokenizer(texts, tmp_path, how, problem):
    with pytest.raises(UserError, match=problem):
        mlcl.run(texts, home=tmp_path / "home", collate=characters, progress=None, **how)


def test_vectors_need_no_function(tmp_path):
    with pytest.raises(UserError, match="key collate: vectors need no collate function"):
        mlcl.compare(
            [[float(i), 1.0] for i in range(60)], labels=["a", "b"] * 30, losses="supcon",
            encoder=nn.Linear(2, 3), collate=corner, home=tmp_path, progress=None,
        )  # fmt: skip
