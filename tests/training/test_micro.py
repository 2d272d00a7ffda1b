"""Tests that micro-batches give the whole batch's gradient, also if a lack of memory changes their size."""

import copy
import ctypes

import psutil
import pytest
import torch
from builders import tiny_job
from torch import nn
from training.test_every_loss import SPACES
from training.training_ranks import limited, loop_of, windows

from mlcl.errors import UserError
from mlcl.grad_cache import rng_state
from mlcl.losses import LOSSES
from mlcl.models.encoders.cnn_image import CnnImage
from mlcl.training.builders import build_loop, build_model
from mlcl.training.checkpoint import seed_all
from mlcl.training.context import Context
from mlcl.training.events import Stopped
from mlcl.training.grad_cache import Passes, check_micro_batch, fit, give_back
from mlcl.training.job_data import JobData
from mlcl.training.loop_settings import Callbacks
from mlcl.training.objective import ContrastiveModel

CPU = Context(torch.device("cpu"))
HEADS = (
    "objective.heads.topic.temperature={learned: 0.3}",
    "objective.heads.detail={loss: simdis, labels: tags, weight: 0.2, reduction: mean_valid}",
)
SAMPLES = 11


def model_and_batch(tiny, home, *overrides):
    """Returns a float64 model and a batch of 11 samples in 2 views."""
    job_data = JobData.of(tiny_job(tiny, *HEADS, *overrides), home)
    seed_all(0)
    model = build_model(job_data).double()
    batch = job_data.encode(job_data.train).batch(torch.arange(SAMPLES), 2, CPU.device)
    return model, batch


def passes(model, precision="float32", share=SAMPLES):
    return Passes(model, model, CPU, precision, 2, share)


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def plain_gradients(model, batch):
    """Returns value and gradients by autograd through encoder and objective at once."""
    model.zero_grad()
    value = model.objective(model.encoder(**batch.inputs), batch.labels, batch.sample_ids)
    value.total.backward()
    return value, gradients(model)


def check_gradient(model, batch, size):
    """Compares value and gradients of micro-batches with those of autograd through the whole batch."""
    expected_value, expected = plain_gradients(model, batch)
    model.zero_grad()
    value = passes(model)(batch, size)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-12, atol=1e-14, msg=name)
    torch.testing.assert_close(value.total, expected_value.total, rtol=1e-13, atol=0)
    assert value.parts.keys() == expected_value.parts.keys()
    return expected


@pytest.mark.parametrize("size", [1, 2, 3, 4, 10, 11, 100])
def test_the_gradient_is_that_of_the_whole_batch(tiny, tmp_path, size):
    expected = check_gradient(*model_and_batch(tiny, tmp_path, "encoder.dropout=0"), size)
    assert "objective.heads.topic_head.loss.temperature.log_tau" in expected


@pytest.mark.parametrize("name", list(LOSSES))
def test_every_loss_has_the_gradient_of_the_whole_batch(tiny, tmp_path, name):
    space = SPACES[LOSSES[name].labels] or "null"
    head = f"loss: {name}, labels: {space}, temperature: {{learned: 0.3}}, weight: 0.2"
    expected = check_gradient(
        *model_and_batch(tiny, tmp_path, "encoder.dropout=0", f"objective.heads.detail={{{head}}}"), 4
    )
    assert expected["objective.heads.detail_head.loss.temperature.log_tau"] != 0


def watched(module):
    """Returns a list that collects each output of a module, and whether it was made with a graph."""
    outputs = []
    module.register_forward_hook(
        lambda module, inputs, output: outputs.append((torch.is_grad_enabled(), output.detach()))
    )
    return outputs


@pytest.mark.parametrize(("size", "rows"), [(4, [8, 7, 7]), (1, [2] * 11), (10, [11, 11]), (11, [22])])
def test_no_pass_is_larger_than_asked(tiny, tmp_path, size, rows):
    model, batch = model_and_batch(tiny, tmp_path)
    outputs = watched(model.encoder)
    passes(model)(batch, size)
    assert [len(z) for with_graph, z in outputs if with_graph] == rows
    assert [len(z) for with_graph, z in outputs if not with_graph] == (rows if size < SAMPLES else [])


@pytest.mark.parametrize(("size", "parts"), [(4, 3), (15, 1)])
def test_dropout_of_the_second_pass_repeats_the_first(tiny, tmp_path, size, parts):
    model, batch = model_and_batch(tiny, tmp_path, "encoder.dropout=0.5")
    outputs = watched(model.encoder)
    passes(model, share=16)(batch, size)
    assert len(outputs) == 2 * parts
    without_grad = torch.cat([z for with_graph, z in outputs if not with_graph])
    with_grad = torch.cat([z for with_graph, z in outputs if with_graph])
    assert torch.equal(without_grad, with_grad)
    assert (without_grad == 0).double().mean() > 0.3
    assert not torch.equal(without_grad[:SAMPLES], without_grad[SAMPLES:])  # the two views of a text differ


def test_randomness_goes_on_after_what_one_encoding_of_the_rows_draws(tiny, tmp_path):
    model, batch = model_and_batch(tiny, tmp_path, "encoder.dropout=0.5")
    seed_all(5)
    passes(model)(batch, 4)
    state = rng_state()["cpu"]
    seed_all(5)
    for rows in torch.arange(2 * SAMPLES).tensor_split(3):
        model.encoder(**{name: value[rows] for name, value in batch.inputs.items()})
    assert torch.equal(state, rng_state()["cpu"])


def test_autocast_holds_in_both_passes(tiny, tmp_path):
    model, batch = model_and_batch(tiny, tmp_path, "encoder.dropout=0")
    model = model.float()
    _, expected = plain_gradients(model, batch)
    model.zero_grad()
    outputs = watched(model.encoder.convolutions[0])
    passes(model, "bf16")(batch, 4)
    assert [(with_graph, z.dtype) for with_graph, z in outputs] == [
        (with_graph, torch.bfloat16) for with_graph in (False, True) for _ in range(3)
    ]
    for name, gradient in gradients(model).items():
        assert gradient.dtype == torch.float32
        assert torch.cosine_similarity(gradient.flatten(), expected[name].flatten(), dim=0) > 0.98, name


class Pixels(nn.Module):
    """An image encoder with BatchNorm that reads token ids as pixels."""

    def __init__(self):
        super().__init__()
        self.encoder = CnnImage(width=4, blocks=2).double()
        self.dim = self.encoder.dim

    def forward(self, input_ids, attention_mask):
        return self.encoder(input_ids.double().repeat(1, 24).reshape(len(input_ids), 3, 8, -1) / 10)


def test_running_statistics_move_once_a_micro_batch(tiny, tmp_path):
    model, batch = model_and_batch(tiny, tmp_path, "encoder.width=4", "encoder.kernel_sizes=[3, 4]")
    model = ContrastiveModel(Pixels(), model.objective)
    expected = copy.deepcopy(model.encoder)
    passes(model)(batch, 4)
    for rows in torch.arange(2 * SAMPLES).tensor_split(3):
        expected(**{name: value[rows] for name, value in batch.inputs.items()})
    buffers, expected_buffers = dict(model.encoder.named_buffers()), dict(expected.named_buffers())
    assert buffers["encoder.blocks.0.1.num_batches_tracked"] == 3
    assert all(torch.equal(buffers[name], expected_buffers[name]) for name in expected_buffers)


def curve(events):
    return windows(events, "train/loss")


def notes(events):
    return [(event.step, event.note) for event in events if event.kind == "note"]


def same(left, right):
    left, right = left.state_dict().values(), right.state_dict().values()
    return all(torch.equal(value, other) for value, other in zip(left, right, strict=True))


@pytest.mark.parametrize("with_graph", [(False, True), (True,)], ids=["any pass", "the pass with a graph"])
@pytest.mark.parametrize("start", [None, 8])
def test_a_run_out_of_memory_goes_on_as_with_the_smaller_micro_batch(tiny, tmp_path, start, with_graph):
    job, small_job = (tiny_job(tiny, micro_batch_size=size) for size in (start, 4))
    small_loop, small_events = loop_of(small_job, tmp_path)
    small_loop.run()
    loop, events = loop_of(job, tmp_path, change=limited(8, with_graph))
    loop.run()
    assert loop.model.encoder.failed == ([32, 16] if start is None else [16])
    assert curve(events) == curve(small_events)
    assert same(loop.model, small_loop.model)
    assert notes(small_events) == []
    size_before = start or 16
    assert notes(events) == [
        (0, f"out of memory: micro-batches of 4 samples a worker from here on, not {size_before}")
    ]
    assert next(event.metrics for event in events if event.kind == "note") == {"train/micro_batch_size": 4.0}


@pytest.mark.parametrize(
    ("size", "limit", "stop_at"), [(3, 100, 1), (3, 100, 3), (3, 100, 5), (3, 100, 11), (None, 8, 2)]
)
def test_a_run_in_micro_batches_is_resumed_to_the_same_bits(tiny, tmp_path, size, limit, stop_at):
    """Tests that a resumed run keeps the micro-batch that fitted after memory ran out, and ends equal."""
    job, path = tiny_job(tiny, "encoder.dropout=0.5", micro_batch_size=size), tmp_path / "checkpoint.pt"
    full_loop, full_events = loop_of(job, tmp_path, change=limited(limit))
    full_loop.run()
    stopped_loop, events = loop_of(job, tmp_path, change=limited(limit), checkpoint=path, stop_at=stop_at)
    with pytest.raises(Stopped):
        stopped_loop.run()
    resumed_loop, resumed_events = loop_of(job, tmp_path, change=limited(limit), checkpoint=path)
    assert resumed_loop.resume()
    resumed_loop.run()
    assert resumed_loop.model.encoder.failed == []
    assert curve(events + resumed_events) == curve(full_events)
    assert same(resumed_loop.model, full_loop.model)


def test_a_failed_attempt_leaves_no_trace():
    norm = nn.BatchNorm1d(2)
    seed_all(0)
    initial_state, sizes = rng_state()["cpu"], []

    def attempt(size):
        assert torch.equal(rng_state()["cpu"], initial_state)
        assert norm.num_batches_tracked == 0
        assert norm.weight.grad is None
        sizes.append(size)
        norm(torch.randn(4, 2)).square().sum().backward()
        if size > 3:
            raise torch.OutOfMemoryError
        return "done"

    assert fit(attempt, 12, 2, norm, world_size=1) == ("done", 3)
    assert sizes == [12, 6, 3]
    assert norm.num_batches_tracked == 1


def test_out_of_memory_at_the_smallest_micro_batch_is_the_users(tiny, tmp_path):
    loop, _ = loop_of(tiny_job(tiny), tmp_path, change=limited(1))
    with pytest.raises(UserError, match="out of memory with the smallest micro-batch") as error:
        loop.run()
    assert (error.value.key, error.value.found) == ("train.micro_batch_size", 1)
    assert loop.model.encoder.failed == [32, 16, 8, 4, 2]


def test_out_of_memory_that_ranks_cannot_agree_on_is_said_clearly():
    def attempt(size):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(RuntimeError, match=r"set train\.micro_batch_size below 16") as error:
        fit(attempt, 16, 1, nn.Linear(1, 1), world_size=2)
    assert isinstance(error.value.__cause__, torch.OutOfMemoryError)


def normed(model):
    """Adds BatchNorm at the end of a text encoder and returns the model."""
    encoder = model.encoder
    encoder.norm = nn.BatchNorm1d(encoder.dim)
    encoder.register_forward_hook(lambda _module, _inputs, z: encoder.norm(z))
    return model


SAID = "BatchNorm: statistics are those of micro-batches of {} samples"


def test_batch_norm_is_said_once_where_it_sees_less_than_the_batch(tiny, tmp_path):
    for size, expected in ((None, []), (16, []), (4, [(0, SAID.format(4))])):
        loop, events = loop_of(tiny_job(tiny, micro_batch_size=size), tmp_path, change=normed)
        loop.run()
        assert notes(events) == expected
    loop, events = loop_of(tiny_job(tiny), tmp_path, change=lambda model: limited(16)(normed(model)))
    loop.run()
    assert [note for _, note in notes(events)][1:] == [SAID.format(8)]


def test_batch_norm_has_two_samples_of_an_uneven_batch_in_each_pass(tiny, tmp_path):
    job_data = JobData.of(tiny_job(tiny, *HEADS), tmp_path)
    model = normed(build_model(job_data))
    batch = job_data.encode(job_data.train).batch(torch.arange(5), 1, CPU.device)
    outputs = watched(model.encoder)
    Passes(model, model, CPU, "float32", 1, 5)(batch, 2)
    assert [len(z) for with_graph, z in outputs if with_graph] == [3, 2]


def test_batch_norm_needs_two_samples():
    with pytest.raises(UserError, match="more than one sample") as error:
        check_micro_batch(1, CnnImage(width=4))
    assert (error.value.key, error.value.found) == ("train.micro_batch_size", 1)
    check_micro_batch(2, CnnImage(width=4))
    check_micro_batch(1, nn.Linear(2, 2))
    check_micro_batch(None, CnnImage(width=4))


@pytest.mark.parametrize(("views", "steps"), [(1, 2), (2, 3)])
def test_batch_norm_has_two_rows_on_each_worker(tiny, tmp_path, views, steps):
    """Tests 48 rows whose last batch has 2, so that with one view each worker would get a single row."""
    job_data = JobData.of(tiny_job(tiny, batch_size=23, views=views), tmp_path)
    model = build_model(job_data)
    model.encoder.norm = nn.BatchNorm1d(model.encoder.dim)
    loop = build_loop(job_data, model, Context(CPU.device, 0, 2), Callbacks(print, dict, bool))
    assert loop.sampler.steps_per_epoch == steps


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library than glibc")
def test_a_heap_full_of_holes_is_given_back_to_the_system():
    # Freed pieces stay in malloc's heap because some pieces between them are kept.
    blocks = [bytearray(100_000) for _ in range(4_000)]
    kept_blocks = blocks[::100]
    del blocks
    rss_before = psutil.Process().memory_info().rss
    give_back()
    assert rss_before - psutil.Process().memory_info().rss > 200_000_000
    assert len(kept_blocks) == 40
