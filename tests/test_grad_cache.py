"""Tests that a step in micro-batches gives the gradient of a step in one pass."""

import pytest
import torch
from grad_cache_ranks import encoder, gradients, parts_of, work
from torch import nn

from mlcl.grad_cache import cached_backward, loss_gradients
from mlcl.losses import LOSSES, LearnedTemperature, build_loss
from mlcl.testing.ranks import run_ranks

CLASSES = torch.arange(12) % 3


def rows():
    return torch.randn(12, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def one_pass(name, **size):
    """Returns the loss and the gradients of the encoder and of the loss's own parameters, by one pass."""
    model, loss, x, value_of = parts_of(name, **size)
    value = value_of(model(x))
    value.backward()
    return value.detach(), gradients(model), gradients(loss)


@pytest.mark.parametrize("name", list(LOSSES))
@pytest.mark.parametrize("sizes", [[14], [5, 5, 4], [1] * 14])
def test_the_gradient_is_that_of_one_pass(name, sizes):
    model, loss, x, value_of = parts_of(name, samples=7)
    value = cached_backward(x.split(sizes), model, value_of)
    actual = value, gradients(model), gradients(loss)
    torch.testing.assert_close(actual, one_pass(name, samples=7), rtol=1e-11, atol=1e-13)
    assert all(gradient.abs().max() > 0 for gradient in [*actual[1], *actual[2]])


def test_two_processes_in_ddp_have_the_gradient_of_one():
    """Two processes, even with unequal or no rows, have the gradient of one process.

    DDP does not average the gradients of the loss's own parameters; their mean over processes is compared.
    """
    jobs = [(name, split) for name in LOSSES for split in ((3, 5), (8, 0))]
    first, second = run_ranks(work, (jobs,), 2)
    for job, (value, model_gradients, own_gradients), (
        other_value,
        other_model_gradients,
        other_own_gradients,
    ) in zip(jobs, first, second, strict=True):
        torch.testing.assert_close(model_gradients, other_model_gradients, rtol=0, atol=0)
        mean = [(a + b) / 2 for a, b in zip(own_gradients, other_own_gradients, strict=True)]
        actual = (value + other_value) / 2, model_gradients, mean
        expected = one_pass(job[0])
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-9, msg=lambda t, j=job: f"{j}: {t}")
        assert expected[1][0].abs().max() > 1e-3


def test_dropout_has_the_random_numbers_of_the_first_pass_and_the_state_goes_on():
    outputs = []
    model = encoder(nn.Dropout(0.5))
    model[1].register_forward_hook(lambda _m, _i, output: outputs.append(output.detach().clone()))
    torch.manual_seed(5)
    cached_backward(rows().split(4), model, lambda z: z.square().sum())
    assert len(outputs) == 6
    for first, second in zip(outputs[:3], outputs[3:], strict=True):
        assert torch.equal(first, second)
    after = torch.rand(3)
    torch.manual_seed(5)
    model(rows().split(4)[0]), model(rows().split(4)[1]), model(rows().split(4)[2])
    assert torch.equal(after, torch.rand(3))


def test_autocast_around_the_whole_step_keeps_the_gradient():
    model, x = encoder(nn.Tanh()).float(), rows().float()
    with torch.autocast("cpu", torch.bfloat16):
        cached_backward(x.split(4), model, lambda z: z.float().square().sum(), module=model)
    actual = gradients(model)
    model.zero_grad()
    model(x).square().sum().backward()
    torch.testing.assert_close(actual, gradients(model), rtol=0.1, atol=0.05)
    assert all(gradient.abs().max() > 0 for gradient in actual)


def test_statistics_of_batch_norm_move_once_a_micro_batch():
    model = encoder(nn.BatchNorm1d(16))
    cached_backward(rows().split(4), model, lambda z: z.square().sum(), module=model)
    assert model[1].num_batches_tracked == 3


def test_the_last_micro_batch_is_encoded_by_the_wrapped_model():
    model, calls = encoder(), []

    def wrapped(x):
        calls.append(len(x))
        return model(x)

    cached_backward(rows().split([5, 5, 2]), model, lambda z: z.sum(), last=wrapped)
    assert calls == [2]


def test_a_frozen_encoder_and_a_loss_that_reads_nothing_have_no_gradient():
    model = encoder().requires_grad_(False)
    assert cached_backward(rows().split(4), model, lambda z: z.sum()).isfinite()
    open_model = encoder()
    bias = torch.zeros((), dtype=torch.float64, requires_grad=True)
    cached_backward(rows().split(4), open_model, lambda _z: bias * 2)
    assert bias.grad == 2
    assert all((gradient == 0).all() for gradient in gradients(open_model))


def test_no_micro_batch_is_refused():
    with pytest.raises(ValueError, match="no micro-batch"):
        cached_backward([], encoder(), lambda z: z.sum())


def test_the_gradients_of_a_loss_are_those_of_rows_and_of_its_own_parameters():
    loss = build_loss("supcon", temperature=LearnedTemperature(0.2), normalize=True).double()
    model = encoder()
    z = model(rows()).detach().requires_grad_()
    gradient, pairs = loss_gradients(loss(z, CLASSES), z, [*model.parameters(), *loss.parameters()])
    loss(z, CLASSES).backward()
    torch.testing.assert_close(gradient, z.grad)
    ((temperature, temperature_gradient),) = pairs
    assert temperature == loss.temperature.log_tau
    torch.testing.assert_close(temperature_gradient, loss.temperature.log_tau.grad)
    unread_gradient, no_pairs = loss_gradients(loss.temperature.log_tau * 2, z, [])
    assert not unread_gradient.any()
    assert no_pairs == []
