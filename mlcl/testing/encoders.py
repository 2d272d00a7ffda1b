"""The test suite of encoders. The author of an encoder writes:

    from mlcl.testing.encoders import EncoderTestCase

    class TestMine(EncoderTestCase):
        sections = ({"name": "mine", "width": 4, "max_length": 8},)

Sections should be small: each test trains the encoder on a few rows, or runs it on them. If no
installed package has the encoder, `modules` names its module.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from mlcl.config import JobConfig, load_job
from mlcl.models import ENCODERS, Encoder
from mlcl.testing import PluginTestCase
from mlcl.testing.datasets import TAGS, small_dataset
from mlcl.training import experiment
from mlcl.training.batches import Batch
from mlcl.training.builders import build_model
from mlcl.training.context import ONE_PROCESS as CPU
from mlcl.training.events import Stopped
from mlcl.training.experiment import ExperimentResult, run_experiment
from mlcl.training.export import load_model, write_export
from mlcl.training.export.labelling import Labelling
from mlcl.training.grad_cache import Passes
from mlcl.training.job_data import JobData
from mlcl.training.objective import ContrastiveModel

ROWS = 8
"""The number of rows in a batch."""
MakeJob = Callable[..., JobConfig]
OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "text": {"lr": 0.01},
    # Without momentum, the large networks of images leave small checkpoints.
    "image": {"lr": 0.001, "optimizer": "sgd", "momentum": 0.0},
    "vectors": {"lr": 0.01},
}


class EncoderTestCase(PluginTestCase):
    """The tests of encoders. A subclass sets `sections`; each is the `encoder` section of a job."""

    registry = ENCODERS
    sections: ClassVar[Sequence[Mapping[str, Any]]] = ()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrises tests by the encoder's section."""
        if "written" in metafunc.fixturenames:
            sections = self.read_list("sections")
            metafunc.parametrize("written", sections, ids=lambda section: section["name"])

    @pytest.fixture
    def section(self, written: Mapping[str, Any]) -> Mapping[str, Any]:
        """The encoder's section of the job. A subclass may add values that are only known during a test."""
        return written

    @pytest.fixture
    def encoder(self, section: Mapping[str, Any]) -> Encoder:
        """The declaration of the encoder."""
        return ENCODERS[section["name"]]

    @pytest.fixture(autouse=True)
    def one_thread(self) -> Iterator[None]:
        """Sets torch to one thread: sums depend on the number, and small networks are slower with several."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)

    @pytest.fixture
    def make_job(self, section: Mapping[str, Any], encoder: Encoder, tmp_path: Path) -> MakeJob:
        """A function that makes a job, which trains the encoder on a small data set.

        Its positional arguments are overrides `KEY=VALUE`, its keywords are keys of the section `train`.
        """
        modality = encoder.reads(encoder.section.model_validate(section))
        data = small_dataset(tmp_path / "data", modality)
        return lambda *overrides, **train: load_job(
            _job_tree(section, data, {**OPTIMIZERS[modality], **train}), overrides
        )

    @pytest.fixture
    def model(self, make_job: MakeJob, tmp_path: Path) -> tuple[ContrastiveModel, JobData]:
        """The untrained model, and the job with its data."""
        job_data = JobData.of(make_job(), tmp_path / "home")
        torch.manual_seed(0)
        return build_model(job_data), job_data

    def test_output(self, encoder: Encoder, model: tuple[ContrastiveModel, JobData]) -> None:
        """Tests that the output is finite float32: (B, dim), or (B, dim + L) with logits of L labels."""
        module, inputs = model[0].encoder.eval(), _encode_inputs(model[1], torch.float32)
        output = module(**inputs)
        labels = int(getattr(module, "label_logits", 0))
        assert labels in ({0, len(TAGS.classes)} if not encoder.label_wise else {len(TAGS.classes)})
        assert output.shape == (ROWS, int(module.dim) + labels)  # type: ignore[arg-type]
        assert output.dtype == torch.float32
        assert output.isfinite().all()
        assert len(output.detach().unique(dim=0)) > 1

    def test_padding_and_the_rest_of_a_batch_never_change_an_output(
        self, model: tuple[ContrastiveModel, JobData]
    ) -> None:
        """Tests that a row's output is the same alone and in a batch, for any ids in the padding."""
        module, inputs = model[0].encoder.double().eval(), _encode_inputs(model[1], torch.float64)
        outputs = module(**inputs)
        if "attention_mask" in inputs:
            mask = inputs["attention_mask"]
            assert not mask.all()
            other_ids = torch.where(mask, inputs["input_ids"], inputs["input_ids"].max())
            torch.testing.assert_close(module(input_ids=other_ids, attention_mask=mask), outputs)
        for row in range(len(outputs)):
            row_inputs = {name: value[row : row + 1] for name, value in inputs.items()}
            if "attention_mask" in row_inputs:
                words = int(row_inputs["attention_mask"].sum())
                row_inputs = {name: value[:, :words] for name, value in row_inputs.items()}
            torch.testing.assert_close(module(**row_inputs)[0], outputs[row])

    def test_micro_batches_give_the_gradient_of_the_whole_batch(
        self, model: tuple[ContrastiveModel, JobData]
    ) -> None:
        """Tests value and gradient with micro-batches against one batch, in float64 without dropout."""
        module, batch = model[0].double().eval(), _encode_batch(model[1], torch.float64)
        results = []
        for size in (ROWS, 3):
            module.zero_grad()
            value = Passes(module, module, CPU, "float32", 2, ROWS)(batch, size).total.detach()
            gradients = {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}
            results.append({"value": value, **gradients})
        assert sum(bool(gradient.any()) for gradient in results[0].values()) > 1
        torch.testing.assert_close(results[1], results[0], rtol=1e-9, atol=1e-12)

    def test_the_second_pass_of_a_micro_batch_repeats_the_first(
        self, model: tuple[ContrastiveModel, JobData]
    ) -> None:
        """Tests that both passes of a micro-batch use the same dropout and give equal outputs."""
        module, outputs = model[0].train(), {False: list[Tensor](), True: list[Tensor]()}
        module.encoder.register_forward_hook(
            lambda _module, _inputs, z: outputs[torch.is_grad_enabled()].append(z.detach())
        )
        Passes(module, module, CPU, "float32", 2, ROWS)(_encode_batch(model[1], torch.float32), 3)
        assert len(outputs[False]) == 3
        assert torch.equal(torch.cat(outputs[False]), torch.cat(outputs[True]))

    def test_steps_reduce_the_objective(self, model: tuple[ContrastiveModel, JobData]) -> None:
        """Tests that twenty steps of Adam on one batch reduce the objective."""
        module, batch = model[0].train(), _encode_batch(model[1], torch.float32)
        optimizer, values = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], 0.02), []
        for _ in range(20):
            optimizer.zero_grad()
            values.append(float(Passes(module, module, CPU, "float32", 2, ROWS)(batch, ROWS).total))
            optimizer.step()
        assert values[-1] < 0.97 * values[0]

    def test_training(self, make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Tests that trained parameters are float32, and that they alone change and are saved."""
        models = []

        def watch(*args: Any) -> ContrastiveModel:
            model = build_model(*args)
            models.append((model, {name: p.detach().clone() for name, p in model.named_parameters()}))
            return model

        monkeypatch.setattr(experiment, "build_model", watch)
        outcome = _run_job(make_job(), tmp_path, "run")
        assert all(math.isfinite(value) for value in outcome.metrics.values())
        assert {"val/micro_f1", "test/micro_f1", "knn/test/micro_f1"} <= outcome.metrics.keys()
        ((model, old_weights),) = models
        saved_weights = _load_weights(tmp_path / "run")
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, old_weights[name]) != parameter.requires_grad, name
            assert (name in saved_weights) == parameter.requires_grad, name
            if parameter.requires_grad:
                assert parameter.dtype == torch.float32, name
                assert torch.equal(parameter, saved_weights[name]), name

    @pytest.mark.usefixtures("one_rank")
    def test_every_trained_parameter_takes_part_in_each_step(self, make_job: MakeJob, tmp_path: Path) -> None:
        """Tests that each trained parameter gets a gradient if the objective is one contrastive head alone.

        Otherwise DDP would refuse the next step.
        """
        job = make_job("objective.classifier.weight=0", "objective.heads.tags.weight=1")
        job_data = JobData.of(job, tmp_path / "home")
        model = build_model(job_data)
        model.train()
        rows, wrapped = job_data.encode(job_data.train), DistributedDataParallel(model)
        passes = Passes(model, wrapped, CPU, "float32", 2, 8)
        for size in (8, 3, 8):
            model.zero_grad()
            passes(rows.batch(torch.arange(8), 2, CPU.device), size)
        assert [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None] == []

    @pytest.fixture
    def one_rank(self, tmp_path: Path) -> Iterator[None]:
        """A process group with only this process, in which DDP checks a module as it does with several."""
        dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rank'}", rank=0, world_size=1)
        yield
        dist.destroy_process_group()

    def test_a_stopped_run_goes_on_to_the_same_bits(
        self, encoder: Encoder, make_job: MakeJob, tmp_path: Path
    ) -> None:
        """Tests that a run that was stopped within an epoch and resumed equals an uninterrupted one.

        The runs train with micro-batches, on texts and frozen inputs in half precision.
        """
        # On a CPU convolutions in half precision are many times slower.
        precision = "bf16" if encoder.modality == "text" or encoder.frozen else "float32"
        job = make_job(epochs=2, batch_size=12, micro_batch_size=6, precision=precision)
        reference = _run_job(job, tmp_path, "whole")
        steps = itertools.count(1)
        with pytest.raises(Stopped):
            _run_job(job, tmp_path, "parts", should_stop=lambda: next(steps) == 3)
        state = torch.load(tmp_path / "parts" / "checkpoint.pt", weights_only=True)["model"]
        assert _load_weights(tmp_path / "whole").keys() <= state.keys()
        resumed = _run_job(job, tmp_path, "parts")
        assert resumed.resumed
        left, right = _load_weights(tmp_path / "whole"), _load_weights(tmp_path / "parts")
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left)
        names = {name for name in reference.metrics if "time/" not in name}
        assert {n: reference.metrics[n] for n in names} == {n: resumed.metrics[n] for n in names}

    def test_an_exported_model_equals_the_evaluation(self, make_job: MakeJob, tmp_path: Path) -> None:
        """Tests that the exported folder alone gives the run's metrics and probabilities, to the last bit."""
        job_data = JobData.of(make_job(), tmp_path / "home")
        metrics = _run_job(job_data.job, tmp_path, "run").metrics
        write_export(tmp_path / "model", tmp_path / "run", job_data, {"name": "a run"})
        model = load_model(tmp_path / "model", "cpu")
        stored = pq.read_table(tmp_path / "run" / "embeddings.parquet").to_pylist()
        for split, name in (("validation", "val"), ("test", "test")):
            result = Labelling(model, tmp_path / "data", split).run(lambda _: None)
            of_the_run = {key: value for key, value in metrics.items() if f"{name}/" in key}
            assert result.metrics == pytest.approx(of_the_run, rel=0, abs=0, nan_ok=True)
            tables: list[Any] = []
            predictor = next(iter(model.index.predictors))
            Labelling(model, tmp_path / "data", split, predictor=predictor, probabilities=True).run(
                tables.append
            )
            rows = [row for row in stored if row["split"] == split]
            assert tables[0]["id"] == [row["id"] for row in rows]
            expected = np.array([row["probabilities"] for row in rows])
            np.testing.assert_array_equal(np.array(tables[0]["probabilities"]), expected)


def _job_tree(section: Mapping[str, Any], data: Path, train: Mapping[str, Any]) -> dict[str, Any]:
    head = {"loss": "simdis", "labels": "tags", "weight": 0.3, "projection": {"dim": 8}}
    knn = {"k": 3, "grid": {"k": [1, 3], "lambda": [0, 1], "temperature": [1.0]}}
    return {
        "experiment": "suite",
        "data": {"path": str(data)},
        "encoder": dict(section),
        "objective": {"heads": {"tags": head}, "classifier": {"loss": "bce", "labels": "tags"}},
        "train": {"epochs": 1, "batch_size": ROWS, "warmup": 0.0, "threads": 1, "device": "cpu", **train},
        "evaluation": {"metric": "val/micro_f1", "knn": knn},
    }


def _run_job(job: JobConfig, folder: Path, name: str, **options: Any) -> ExperimentResult:
    job_data = JobData.of(job, folder / "home")
    outcome = run_experiment(job_data, folder=folder / name, context=CPU, listener=lambda _: None, **options)
    assert outcome is not None
    return outcome


def _load_weights(run: Path) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = load_file(run / "model" / "weights.safetensors")
    return weights


def _encode_batch(job_data: JobData, dtype: torch.dtype) -> Batch:
    """Returns a batch of `ROWS` samples with two views of each."""
    batch = job_data.encode(job_data.train).batch(torch.arange(ROWS), 2, CPU.device)
    return replace(batch, inputs=_convert_floats(batch.inputs, dtype))


def _encode_inputs(job_data: JobData, dtype: torch.dtype) -> dict[str, Tensor]:
    return _convert_floats(
        job_data.encode(job_data.train).plain_inputs(torch.arange(ROWS), CPU.device), dtype
    )


def _convert_floats(inputs: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}
