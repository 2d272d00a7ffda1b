"""Tests of mlcl.integrations.lightning with the real package: DDP, the gradient cache and statistics."""

import doctest

import pytest
import torch
from integrations.ranks import SPLITS, close, documented, gradients_of

pytest.importorskip("lightning", reason="lightning is not installed")

import lightning
from integrations.lightning_ranks import QUIET, Cached, Plain, batch, fit, module_of, work
from lightning.pytorch.plugins.precision import MixedPrecision
from torch.utils.data import DataLoader

import mlcl.integrations.lightning as adapter
from mlcl.integrations.lightning import LossStatsLogger
from mlcl.samplers import LabelBatchSampler
from mlcl.testing.ranks import run_ranks

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),
]
JOBS = [
    {"kind": kind, "splits": splits, "unused": unused}
    for kind in ("plain", "cached")
    for splits, unused in (*(([split], False) for split in SPLITS), (SPLITS, False), (SPLITS, True))
]


def whole(count):
    """Returns the rows of several batches as one batch."""
    x, y = zip(*map(batch, range(count)), strict=True)
    return torch.cat(x), torch.cat(y)


def one_pass(job):
    """Returns the gradients of one process in plain PyTorch, and the loss of all rows."""
    model, count = module_of(job), len(job["splits"])
    if job["kind"] == "cached":
        value = Plain.training_step(model, whole(count), 0)
    else:
        value = sum(model.training_step(batch(n), 0) for n in range(count)) / count
    value.backward()
    return gradients_of(model), value.detach()


@pytest.fixture(scope="module")
def ranks():
    return run_ranks(work, (JOBS,), 2)


def test_gradients_of_two_processes_are_those_of_one(ranks):
    for number, job in enumerate(JOBS):
        expected, value = one_pass(job)
        assert expected["loss.temperature.log_tau"] != 0
        for answers, *_ in ranks:
            (gradients,), _ = answers[number]
            close(
                {name: gradient for name, gradient in gradients.items() if not name.startswith("head")},
                expected,
            )
        if job["kind"] == "cached":
            mean = sum(answers[number][1][0] for answers, *_ in ranks) / 2
            torch.testing.assert_close(mean, value, rtol=1e-9, atol=0)


def test_each_process_gets_its_part_of_the_samplers_batches(ranks):
    (_, first, message), (_, second, _) = ranks
    expected = list(LabelBatchSampler(list(range(4)) * 5, 8))
    assert [[*a, *b] for a, b in zip(first, second, strict=True)] == expected
    assert "use_distributed_sampler=False" in message


@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_batches_are_collected_and_the_last_of_an_epoch_ends_a_step(every):
    model = fit(Cached(every), [batch(n) for n in range(5)], max_epochs=2)
    assert len(model.seen) == 2 * -(-5 // every)
    expected = module_of({"kind": "plain", "unused": False})
    expected.training_step(whole(min(every, 5)), 0).backward()
    close(model.seen[0], gradients_of(expected))


def test_what_a_stopped_epoch_left_is_not_in_the_next_fit():
    model = Cached(4)
    fit(model, [batch(n) for n in range(8)], max_steps=1)
    model._collected_batches = [batch(9)]
    fit(model, [batch(n) for n in range(4)])
    assert model.values[-1] < 10
    assert len(model._collected_batches) == 0


def test_bfloat16_is_computed_in_the_second_pass_too():
    model = Cached(2).float()
    fit(model, [(x.float(), y) for x, y in map(batch, range(2))], precision="bf16-mixed")
    assert all(gradient.isfinite().all() for gradient in model.seen[0].values())


def test_gradients_of_scaled_float16_are_unscaled():
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    precision = MixedPrecision("16-mixed", "cpu", scaler)
    models = [Cached(2).float() for _ in range(2)]
    for model, plugins in zip(models, ([precision], []), strict=True):
        fit(model, [(x.float(), y) for x, y in map(batch, range(2))], plugins=plugins)
    half, full = (model.seen[0] for model in models)
    assert set(half) == set(full)
    for name, gradient in full.items():
        torch.testing.assert_close(half[name], gradient, rtol=0.05, atol=2e-3)


class Logged(Plain):
    def on_train_batch_end(self, *_):
        self.values.append({name: float(value) for name, value in self.trainer.logged_metrics.items()})


def test_the_callback_logs_the_stats_of_the_losses():
    model = fit(Logged(), [batch(n) for n in range(4)], callbacks=[LossStatsLogger(every=2)])
    assert model.values[0] == {}
    assert model.values[1]["loss/positives_per_anchor"] > 0
    assert set(model.values[3]) == {f"loss/{name}" for name in model.loss.stats.as_dict()}
    assert model.values[3]["loss/alignment"] == pytest.approx(model.loss.stats.alignment)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="every; found: 0; allowed: 1 or more"):
        LossStatsLogger(every=0)
    with pytest.raises(ValueError, match="every; found: 0; allowed: 1 or more"):
        fit(Cached(0), [batch(0)])
    plain_model = Plain()
    plain_model.loss = None
    with pytest.raises(ValueError, match="needs a loss of mlcl as a submodule"):
        fit(plain_model, [batch(0)], callbacks=[LossStatsLogger()])
    automatic_model = Cached(1)
    automatic_model.automatic_optimization = True
    with pytest.raises(ValueError, match="found: automatic_optimization True; allowed: False"):
        fit(automatic_model, [batch(0)])
    model = Cached(1)
    model.trainer = lightning.Trainer(**QUIET)
    with pytest.raises(ValueError, match="no micro-batch"):
        model.cached_backward([], model.encoder, torch.sum)


def test_lightning_sets_the_epoch_of_the_sampler():
    x, y = whole(3)
    classes = y[:, 0].tolist()
    rows, epochs = list(zip(x, y, strict=True)), []

    class Recorder(Plain):
        def on_train_epoch_start(self):
            epochs.append(self.trainer.train_dataloader.batch_sampler.epoch)

    loader = DataLoader(rows, batch_sampler=LabelBatchSampler(classes, 8, order="pk"))
    list(loader)  # an epoch outside the trainer
    lightning.Trainer(**{**QUIET, "max_epochs": 3}).fit(Recorder(), loader)
    assert epochs == [0, 1, 2]


def test_the_documented_code_trains():
    class Base(Plain):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

    names = {"lightning": lightning, "torch": torch, "Base": Base}
    exec(documented("lightning"), names)
    assert len(fit(names["Model"](), [batch(n) for n in range(8)]).seen) == 2


def test_the_examples_of_the_docstrings_run():
    result = doctest.testmod(adapter, extraglobs={"lightning": lightning, "torch": torch})
    assert result.attempted > 1
    assert result.failed == 0
