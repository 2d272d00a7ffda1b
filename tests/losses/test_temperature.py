import math

import numpy as np
import pytest
import torch
from torch import nn

from mlcl.losses import ConstantTemperature, LearnedTemperature, ScheduledTemperature, build_loss


@pytest.mark.parametrize("temperature", [ConstantTemperature(0.07), ScheduledTemperature(0.07, 1.0)])
def test_what_is_not_learned_is_no_parameter(temperature):
    assert list(temperature.parameters()) == []
    assert temperature.value().item() == 0.07
    assert temperature.value().shape == ()


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("linear", {0.0: 0.5, 0.25: 0.4, 1.0: 0.1, 1.5: 0.1, -1.0: 0.5}),
        ("cosine", {0.0: 0.5, 0.25: 0.1 + 0.4 * (1 + math.sqrt(0.5)) / 2, 0.5: 0.3, 1.0: 0.1}),
    ],
)
def test_schedules(schedule, expected):
    temperature = ScheduledTemperature(0.5, 0.1, schedule)
    for fraction, value in expected.items():
        temperature.set_progress(fraction)
        assert temperature.value().item() == pytest.approx(value)


def test_a_number_of_numpy_is_a_temperature_and_text_is_no_flag():
    assert build_loss("supcon", temperature=np.float32(0.5)).temperature.number() == 0.5
    with pytest.raises(ValueError, match="normalize must be True or False; found: 'no'"):
        build_loss("supcon", temperature=0.5, normalize="no")
    with pytest.raises(ValueError, match="gather must be True or False; found: 'false'"):
        build_loss("supcon", temperature=0.5, gather="false")


def test_schedule_reaches_the_loss(rows):
    loss = build_loss("supcon", temperature=ScheduledTemperature(0.5, 0.1))
    loss.temperature.set_progress(1.0)
    expected = build_loss("supcon", temperature=0.1)(rows.z, rows.labels("supcon"))
    assert loss(rows.z, rows.labels("supcon")).item() == pytest.approx(expected.item(), rel=1e-14)


def test_only_a_schedule_listens():
    for temperature in (ConstantTemperature(0.2), LearnedTemperature(0.2)):
        temperature.set_progress(1.0)
        assert temperature.value().item() == pytest.approx(0.2)


@pytest.mark.parametrize("name", ["supcon", "simdis", "knn"])
def test_learned_temperature_has_the_right_gradient(name, rows):
    temperature = LearnedTemperature(0.4).double()
    loss = build_loss(name, temperature=temperature)

    def value(log_tau):
        return torch.func.functional_call(loss, {"temperature.log_tau": log_tau}, (rows.z, rows.labels(name)))

    start = temperature.log_tau.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(value, (start,))
    assert list(dict(loss.named_parameters())) == ["temperature.log_tau"]


def test_the_schedules_position_is_in_the_state():
    first, second = ScheduledTemperature(0.5, 0.1), ScheduledTemperature(0.5, 0.1)
    first.set_progress(0.7)
    second.load_state_dict(first.state_dict())
    assert second.value() == first.value()


@pytest.mark.parametrize("bad", [0.0, -0.1, math.nan, math.inf, True, "0.1", None])
def test_a_temperature_is_above_zero(bad):
    for factory in (ConstantTemperature, LearnedTemperature, lambda t: ScheduledTemperature(0.1, t)):
        with pytest.raises(ValueError, match="above 0"):
            factory(bad)
    with pytest.raises(ValueError, match="above 0"):
        build_loss("supcon", temperature=bad)


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ValueError, match="allowed: linear, cosine"):
        ScheduledTemperature(0.1, 0.2, "step")


@pytest.mark.parametrize("change", [nn.Module.half, nn.Module.bfloat16, nn.Module.double])
@pytest.mark.parametrize("temperature", [ConstantTemperature(0.07), ScheduledTemperature(0.07, 0.3)])
def test_a_module_in_another_precision_keeps_its_number(temperature, change):
    module = change(nn.Sequential(temperature))[0]
    assert (module.number(), float(module.value()), module.value().dtype) == (0.07, 0.07, torch.float64)
