import pytest
import torch
from torch import nn

from mlcl.config.training_sections import TrainConfig
from mlcl.errors import UserError
from mlcl.training.optim import build_optimizer, build_schedule, learning_rates, parameter_groups


def test_only_matrices_decay():
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    decayed_group, undecayed_group = parameter_groups(model, 0.1)
    assert [p.shape for p in decayed_group["params"]] == [(4, 3)]
    assert (decayed_group["weight_decay"], undecayed_group["weight_decay"]) == (0.1, 0.0)
    assert len(undecayed_group["params"]) == 3


def optimizer_of(model, name, lr, weight_decay, momentum, encoder_lr=None):
    keys = {"optimizer": name, "lr": lr, "weight_decay": weight_decay, "momentum": momentum}
    return build_optimizer(model, TrainConfig(epochs=1, batch_size=2, encoder_lr=encoder_lr, **keys))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(3, 4)
        self.encoder_head = nn.Linear(4, 2)


def test_an_encoder_has_a_learning_rate_of_its_own():
    model = Model()
    optimizer = optimizer_of(model, "sgd", 0.5, 0.1, 0.0, encoder_lr=0.01)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert [rates[id(p)] for p in model.encoder.parameters()] == [0.01, 0.01]
    assert [rates[id(p)] for p in model.encoder_head.parameters()] == [0.5, 0.5]
    assert sorted(group["weight_decay"] for group in optimizer.param_groups) == [0, 0, 0.1, 0.1]
    schedule = build_schedule(optimizer, "cosine", 8, 0.5)
    assert learning_rates(optimizer) == {"lr": 0.125, "encoder_lr": 0.0025}
    optimizer.step()
    schedule.step()
    assert learning_rates(optimizer) == {"lr": 0.25, "encoder_lr": 0.005}
    assert learning_rates(optimizer_of(model, "sgd", 0.5, 0.1, 0.0)) == {"lr": 0.5}


def test_an_encoder_that_does_not_train_needs_no_learning_rate():
    model = Model()
    model.encoder.requires_grad_(False)
    assert learning_rates(optimizer_of(model, "adam", 0.5, 0.1, 0.0, encoder_lr=0.01)) == {"lr": 0.5}


def test_a_model_without_anything_to_train_is_refused():
    with pytest.raises(UserError, match="nothing is left to train") as error:
        optimizer_of(Model().requires_grad_(False), "adamw", 0.5, 0.1, 0.0)
    assert error.value.key == "encoder.freeze"


def factors(name, steps, warmup):
    optimizer = optimizer_of(nn.Linear(2, 2), "sgd", 1.0, 0.0, 0.9)
    schedule = build_schedule(optimizer, name, steps, warmup)
    values = []
    for _ in range(steps):
        values.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return values


def test_warm_up_then_cosine():
    values = factors("cosine", 100, 0.05)
    assert values[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert values[5] == pytest.approx(1.0)
    assert values[52] == pytest.approx(0.5, abs=0.01)
    assert values[-1] < 0.001
    assert values[5:] == sorted(values[5:], reverse=True)


def test_constant_after_warm_up_and_no_warm_up():
    assert factors("constant", 10, 0.2) == pytest.approx([0.5, 1.0, *[1.0] * 8])
    assert factors("cosine", 4, 0.0)[0] == 1.0


def test_both_optimisers_are_pytorchs():
    model = nn.Linear(2, 2)
    assert isinstance(optimizer_of(model, "adamw", 0.1, 0.1, 0.9), torch.optim.AdamW)
    sgd = optimizer_of(model, "sgd", 0.1, 0.1, 0.8)
    assert isinstance(sgd, torch.optim.SGD)
    assert sgd.param_groups[0]["momentum"] == 0.8
