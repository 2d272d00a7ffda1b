"""Tests a user's modules as encoders: the contents of a job, refusals, and models that open elsewhere."""

import random
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
import yaml
from builders import job_tree, shades, text_dataset
from safetensors.torch import load_file
from stored_runs import run
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

import mlcl
from mlcl.api.caller_encoder import caller_encoder_of
from mlcl.api.common import with_encoder
from mlcl.api.identity import identity_of
from mlcl.config import job_hash, load_job
from mlcl.errors import UserError
from mlcl.models import build_encoder
from mlcl.service.export_run import export_run
from mlcl.tracking import Tracker
from mlcl.training.checkpoint import seed_all
from mlcl.training.export import write_export
from mlcl.training.stored_run import StoredRun

pytestmark = pytest.mark.usefixtures("forgotten_plugin_files")


def squash(x):
    return torch.tanh(x)


class Shade(nn.Module):
    """A module that reads the mean shade, and has every kind of state that a module may have."""

    def __init__(self, width=4, power=1.0):
        super().__init__()
        self.power = power
        self.first = nn.Linear(3, width)
        self.second = nn.Linear(width, width)
        self.second.weight = nn.Parameter(torch.eye(width))
        self.tied = self.second
        self.register_buffer("scale", torch.full((1,), 2.0))
        self.register_buffer("shift", torch.full((1,), 3.0), persistent=False)

    def forward(self, pixels):
        h = self.first(pixels.mean((2, 3)) ** self.power) * self.scale + self.shift
        return squash(self.tied(self.second(h)))


class Recurrent(nn.Module):
    def __init__(self, vocabulary_size=6):
        super().__init__()
        self.table, self.states = nn.Embedding(vocabulary_size, 4), nn.LSTM(4, 5, batch_first=True)

    def forward(self, input_ids, attention_mask):
        return (self.states(self.table(input_ids))[0] * attention_mask[..., None]).sum(1)


class Repeated(nn.Module):
    """A module that applies one layer three times."""

    def __init__(self, in_features=3):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(in_features, in_features)] * 3)

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


class Drawn(nn.Module):
    """A module with random numbers that no step changes, and that are not all in its state."""

    def __init__(self, in_features):
        super().__init__()
        self.frozen = nn.Parameter(torch.randn(in_features, 16), requires_grad=False)
        self.register_buffer("scale", torch.rand(16), persistent=False)
        self.shift = random.random() + float(np.random.rand())
        self.layer = nn.Linear(16, 4)

    def forward(self, x):
        return self.layer(torch.cos(x @ self.frozen) * self.scale + self.shift)


@pytest.fixture
def images(tmp_path):
    return image_tree(shades(tmp_path / "data"))


@pytest.fixture
def vectors(tmp_path):
    """Returns a job on vectors whose first or second number determines the class."""
    numbers = [[2.0 * (i % 2), 2.0 - 2.0 * (i % 2), 0.1 * i] for i in range(60)]
    table = {"v": numbers, "kind": ["ab"[i % 2] for i in range(60)]}
    table["part"] = ["train"] * 40 + ["validation"] * 10 + ["test"] * 10
    folder = mlcl.prepare(table, labels="kind", split="part", home=tmp_path / "home")
    tree = image_tree(folder)
    tree["train"] |= {"epochs": 20, "lr": 0.05}
    return tree | {"encoder": {"name": "features", "inputs": ["column"]}}


def image_tree(folder):
    tree = job_tree(folder)
    tree["objective"] = {"heads": {}, "classifier": {"loss": "cross_entropy", "labels": "kind"}}
    tree["train"] |= {"epochs": 1, "batch_size": 8}
    return tree | {"encoder": {"name": "cnn_image", "image_size": 8}}


def words():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "ball": 1, "vote": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def job_with(tree, encoder, home, tokenizer=None, say=lambda _line: None):
    return load_job(tree, with_encoder(encoder, tokenizer, tree, {"train.seed": 3}, home, say))


def test_a_module_starts_from_its_weights_and_a_class_from_those_of_the_seed(images, tmp_path):
    module = Shade()
    job = job_with(images, module, tmp_path)
    assert (job.encoder.image_size, job.train.seed) == (8, 3)
    encoder = build_encoder(job.encoder)
    pixels = torch.rand(5, 3, 8, 8)
    assert torch.equal(encoder(pixels=pixels), module(pixels))
    assert (encoder.dim, encoder.module.tied) == (4, encoder.module.second)
    job = job_with(images, partial(Shade, width=6), tmp_path)
    torch.manual_seed(1)
    output = build_encoder(job.encoder)(pixels=pixels)
    assert output.shape == (5, 6)
    assert not torch.equal(build_encoder(job.encoder)(pixels=pixels), output)
    torch.manual_seed(1)
    assert torch.equal(build_encoder(job.encoder)(pixels=pixels), output)


def test_a_module_of_texts_reads_its_own_tokens_or_the_words_of_the_training_texts(tmp_path):
    tree = job_tree(text_dataset(tmp_path / "data")) | {"encoder": {"name": "cnn_text", "max_length": 7}}
    for encoder, tokenizer in ((Recurrent(), words()), (Recurrent, None)):
        job = job_with(tree, encoder, tmp_path, tokenizer)
        assert job.encoder.max_length == 7
        report = mlcl.run(tree, home=tmp_path, encoder=encoder, tokenizer=tokenizer, progress=None)
        assert report.state == "COMPLETE"


@pytest.mark.parametrize(
    "encoder",
    [
        nn.Sequential(nn.Linear(3, 5), nn.GELU()),
        partial(nn.Linear, out_features=5),
        Repeated,
        Repeated(),
    ],
)
def test_a_module_of_vectors_trains_and_its_exported_model_predicts(vectors, tmp_path, encoder):
    report = mlcl.run(vectors, home=tmp_path / "home", encoder=encoder, progress=None)
    assert (report.state, report.metrics["test/accuracy"]) == ("COMPLETE", 1.0)
    export_run(Tracker.open_existing(tmp_path / "home"), report.id, tmp_path / "model")
    assert mlcl.load_model(tmp_path / "model").predict([[0.0, 2.0, 0.0]]).labels == ["a"]


def test_random_numbers_that_are_not_trained_are_those_of_the_training_in_an_exported_model(
    vectors, tmp_path
):
    job_data, _ = run(job_with(vectors, Drawn, tmp_path), tmp_path)
    seed_all(7)
    write_export(tmp_path / "model", tmp_path / "run", job_data, {})
    model = mlcl.load_model(tmp_path / "model", "cpu")
    numbers = torch.rand(1).item(), random.random(), np.random.rand()
    seed_all(7)
    assert numbers == (torch.rand(1).item(), random.random(), np.random.rand())
    embeddings = StoredRun.read(tmp_path / "run", job_data).embeddings["test"]
    torch.testing.assert_close(model.outputs(job_data.dataset.split("test").vectors().tolist()), embeddings)


def test_the_check_of_a_class_leaves_the_callers_random_numbers(vectors, tmp_path):
    seed_all(7)
    expected = torch.rand(1).item(), random.random(), np.random.rand()
    seed_all(7)
    job_with(vectors, Drawn, tmp_path)
    assert (torch.rand(1).item(), random.random(), np.random.rand()) == expected


def one_of_equal_classes():
    class Own(nn.Linear):
        def __init__(self, in_features):
            super().__init__(in_features, 4)

    return Own


def test_a_module_has_one_text_in_all_homes_of_a_process(vectors, tmp_path):
    first, second = (
        job_with(vectors, one_of_equal_classes(), tmp_path / home) for home in ("first", "second")
    )
    assert job_hash(first) == job_hash(second)
    assert len(list((tmp_path / "second").glob("encoders/Own_*.py"))) == 1


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_run_does_not_depend_on_the_types_and_gradients_of_the_caller(vectors, tmp_path, precision):
    def of_run():
        settings = {"train.epochs": 2, "train.precision": precision}
        report = mlcl.run(vectors, settings, home=tmp_path / "home", encoder=Drawn, progress=None)
        (weights,) = report.folder.glob("model/*.safetensors")
        return load_file(weights)

    expected = of_run()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            actual = of_run()
            assert not torch.is_grad_enabled()
            assert torch.is_autocast_enabled("cpu")
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], weight) for name, weight in expected.items())


@pytest.mark.parametrize(
    ("encoder", "tokenizer", "problem"),
    [
        (nn.Linear(4, 5), None, r"forward of Linear fails with column \(2, 3\); .*forward\(vectors\)"),
        (nn.Linear(3, 5), words, "vectors have no tokens"),
    ],
)
def test_a_module_of_other_vectors_is_refused(vectors, tmp_path, encoder, tokenizer, problem):
    options = {"encoder": encoder, "tokenizer": tokenizer and tokenizer(), "progress": None}
    with pytest.raises(UserError, match=problem):
        mlcl.run(vectors, home=tmp_path / "home", **options)
    assert not (tmp_path / "home" / "runs").exists()


def test_the_hash_of_a_job_tells_modules_apart(images, tmp_path, monkeypatch):
    def hash_of(encoder):
        return job_hash(job_with(images, encoder, tmp_path))

    torch.manual_seed(0)
    module = Shade()
    first = hash_of(module)
    torch.manual_seed(0)
    assert hash_of(Shade()) == first == hash_of(module.eval())
    encoders = [Shade(), Shade, partial(Shade, width=5), partial(Shade, power=2.0)]
    module.power = 2.0
    encoders += [module, nn.Sequential(module), lambda: Shade(), lambda: Shade(7)]
    hashes = [first, *map(hash_of, encoders)]
    before = hash_of(Shade)
    monkeypatch.setitem(globals(), "squash", torch.relu)
    assert len({*hashes, hash_of(Shade)}) == len(encoders) + 2
    monkeypatch.undo()
    assert hash_of(Shade) == before


def test_a_class_of_a_script_has_one_identity_in_all_processes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, helpers\nfrom torch import nn\nfrom mlcl.api.identity import identity_of\n"
        "class Mine(nn.Module):\n    kinds = {'a', 'b', 'c'}\n    def forward(self, x):\n"
        "        return [helpers.f(y) for y in x if str(y) in {'p', 'q'}]\n"
        "torch.manual_seed(0)\nprint(identity_of([Mine(), Mine, nn.LSTM(2, 3)]).digest)\n"
    )

    def digest(seed, helper="def f(x): return x"):
        (tmp_path / "helpers.py").write_text(helper)
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, script]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    first = digest("1")
    assert digest("2") == first
    assert digest("1", "def f(x): return -x") != first


def test_the_identity_of_a_class_depends_on_modules_that_its_modules_import(tmp_path):
    (tmp_path / "helpers.py").write_text("import values\ndef f(x): return values.SCALE * x")
    script = tmp_path / "script.py"
    script.write_text(
        "import helpers\nfrom torch import nn\nfrom mlcl.api.identity import identity_of\n"
        "class Mine(nn.Module):\n    def forward(self, x):\n        return helpers.f(x)\n"
        "print(identity_of(Mine).digest)\n"
    )

    def digest(scale):
        (tmp_path / "values.py").write_text(f"SCALE = {scale!r}")
        environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, script]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert digest(3.0) == digest(3.0) != digest(14.5)


def test_limitations_are_said_in_one_line_before_the_start(images, tmp_path):
    lines = []
    module = Shade()
    job_with(images, module, tmp_path, say=lines.append)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    code = f"encoder Shade: the code of Shade is pickled, for Python {python} alone"
    (file,) = tmp_path.glob("encoders/*.safetensors")
    assert lines == [f"{code}; trainings start from {file}, which another machine lacks"]
    job_with(images, Shade, tmp_path, say=lines.append)
    assert lines[1:] == [code]
    job_with(
        images, partial(nn.Sequential, nn.AdaptiveAvgPool2d(1), nn.Flatten()), tmp_path, say=lines.append
    )
    assert lines[2:] == []


class Halved(Shade):
    def forward(self, pixels):
        return super().forward(pixels).half()


class Broken(Shade):
    def forward(self, pixels):
        raise RuntimeError("mat1 and mat2")


class Changing(nn.Linear):
    """A module that subtracts a running mean, which each of the ways keeps elsewhere than saved weights."""

    def __init__(self, way, in_features=3):
        super().__init__(in_features, 4)
        self.way, start = way, torch.zeros(1 if way == "shape" else in_features)
        if way == "attribute":
            self.mean = start
        elif way == "frozen":
            self.mean = nn.Parameter(start, requires_grad=False)
        else:
            self.register_buffer("mean", start, persistent=way != "not persistent")

    def forward(self, x):
        if self.training:
            mean = self.mean.data * 0.5 + x.detach().mean(0) * 0.5
            self.mean = nn.Parameter(mean, requires_grad=False) if self.way == "frozen" else mean
        return super().forward(x - self.mean)


class Kept(nn.Linear):
    def get_extra_state(self):
        return {"kept": 1}

    def set_extra_state(self, state):
        pass


@pytest.mark.parametrize("way", ["attribute", "not persistent", "shape", "frozen"])
def test_a_module_whose_saved_weights_lack_what_training_changes_is_refused(vectors, tmp_path, way):
    for encoder in (Changing(way), partial(Changing, way)):
        with pytest.raises(
            UserError, match="training changes what the saved weights of Changing do not hold"
        ):
            job_with(vectors, encoder, tmp_path)
    assert job_with(vectors, partial(Changing, "persistent"), tmp_path).encoder.name.startswith("Changing")


def test_a_class_with_a_state_that_is_no_tensor_is_refused(vectors, tmp_path):
    with pytest.raises(
        UserError, match="a state that is not a tensor; found: _extra_state; allowed: buffers"
    ):
        job_with(vectors, partial(Kept, 3, 4), tmp_path)


@pytest.mark.parametrize(
    ("encoder", "problem"),
    [
        (
            nn.Conv2d(3, 4, 3),
            r"forward of Conv2d returns no embeddings .*float32 \(2, 4, 6, 6\); allowed: .*B, D",
        ),
        (Halved, r"returns no embeddings of two rows; found: torch.float16 \(2, 4\)"),
        (nn.LSTM(8, 4), "forward of LSTM"),
        (Broken, r"forward of Broken fails with pixels \(2, 3, 8, 8\); found: RuntimeError: mat1"),
        (partial(Shade, witdh=3), "cannot be made here; found: TypeError: .*witdh"),
        (dict, "does not return a torch.nn.Module; found: dict"),
        ("resnet19", "no encoder; found: 'resnet19'; allowed: a torch.nn.Module"),
        (nn.LazyLinear(3), "cannot be hashed"),
        (Recurrent(), "a module of texts needs its tokenizer"),
        (Shade().double(), "forward of Shade fails"),
    ],
)
def test_a_module_that_is_no_encoder_is_refused_before_anything_starts(images, tmp_path, encoder, problem):
    with pytest.raises(UserError, match=problem):
        mlcl.run(images, home=tmp_path / "home", encoder=encoder, progress=None)
    assert not (tmp_path / "home" / "runs").exists()


def test_other_tokenizers_and_tokenizers_alone_are_refused(tmp_path):
    with pytest.raises(UserError, match="not a tokenizer that can be saved; found: function"):
        caller_encoder_of(Recurrent(), squash, tmp_path)
    with pytest.raises(UserError, match="no encoder; found: None"):
        caller_encoder_of(None, words(), tmp_path)


def test_weights_of_another_module_and_code_of_another_python_are_refused(images, tmp_path, monkeypatch):
    job = job_with(images, Shade(), tmp_path)
    (file,) = tmp_path.glob("encoders/*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match="weights of another module"):
        build_encoder(job.encoder)
    monkeypatch.setattr("mlcl.models.caller_module.PYTHON", "3.99")
    with pytest.raises(UserError, match=r"another version of Python; found: 3\.99"):
        build_encoder(job.encoder)


def test_what_cannot_be_read_has_no_identity():
    with pytest.raises(TypeError, match="cannot pickle"):
        identity_of([sys._getframe()])


def test_an_exported_model_opens_without_the_callers_file_and_weights(images, tmp_path):
    source = (
        "import torch\nfrom torch import nn\nSIDE = 2\n"
        "class Own(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = nn.Linear(3, 4)\n    def forward(self, x):\n"
        "        return self.layer(x.mean((SIDE, SIDE + 1)))\n"
    )
    (tmp_path / "own_encoders.py").write_text(source)
    home, job = tmp_path / "home", tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(images))
    run = f"mlcl.run({str(job)!r}, home={str(home)!r}, encoder=own_encoders.Own())"
    train = f"import mlcl, own_encoders\nprint({run}.id)"
    command = [sys.executable, "-c", train]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    (tmp_path / "own_encoders.py").unlink()
    export_run(Tracker.open_existing(home), process.stdout.strip(), tmp_path / "model")
    for file in home.glob("encoders/*"):
        file.unlink()
    open_model = f"import mlcl\nprint(len(mlcl.load_model({str(tmp_path / 'model')!r}).classes_))"
    process = subprocess.run([sys.executable, "-c", open_model], capture_output=True, text=True, check=True)
    assert process.stdout == "2\n"
