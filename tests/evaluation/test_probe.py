import numpy as np
import pytest
import torch
from evaluation.metric_loops import with_unknown
from torch.nn import functional
from torch.optim import AdamW

from mlcl.evaluation import (
    ProbeGrid,
    ProbeRows,
    Scoring,
    evaluate,
    linear_probe,
    predict,
    probe_training,
)
from mlcl.labels import LabelRows


def blobs(n, classes=4, dim=6, seed=0, noise=0.2):
    centres = torch.randn(classes, dim, generator=torch.Generator().manual_seed(99)) * 3
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=generator)
    # The features are shifted and scaled, so that they must be standardised.
    x = (centres[y] + noise * torch.randn(n, dim, generator=generator)) * 100 + 1000
    return x, y


def run(train, val, task="single", n_classes=4, **changes):
    options = {"lrs": (1e-3, 1e-1), "weight_decays": (0.0, 1e-2), "epochs": 20, "batch_size": 32, "seed": 0}
    scoring = Scoring(changes.pop("metric", "accuracy"), changes.pop("mode", "max"))
    rows = train if isinstance(train, ProbeRows) else ProbeRows(*train)
    grid = ProbeGrid(**(options | changes))
    return linear_probe(rows, *val, task=task, n_classes=n_classes, grid=grid, scoring=scoring)


def test_separable_classes():
    result = run(blobs(200), blobs(80, seed=1))
    x, y = blobs(100, seed=2)
    probabilities = predict(result, x)
    assert probabilities.shape == (100, 4)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(100))
    assert evaluate("single", probabilities, y)["accuracy"] == 1
    assert result.weight.shape == (4, 6)
    assert result.metrics["accuracy"] == 1


def test_separable_labels():
    x, y = blobs(200)
    lists = [[0, 1], [1, 2], [2], []]
    rows = LabelRows.from_lists([lists[c] for c in y.tolist()], 3)
    result = run((x, rows), (x, rows), task="multi_label", n_classes=3, metric="micro_f1")
    assert result.metrics["micro_f1"] == 1
    assert predict(result, x).shape == (200, 3)


def test_separable_aspects_with_missing_targets():
    x, y = blobs(200)
    targets = torch.stack([y, (y + 1) % 4, y // 2], dim=1)
    targets[::3, 1] = -1
    targets[5] = -1
    result = run((x, targets), (x, targets), task="aspects")
    assert result.metrics["accuracy"] == 1
    assert result.weight.shape == (3, 4, 6)
    assert predict(result, x).shape == (200, 3, 4)


def test_missing_rows_do_not_matter():
    x, y = blobs(64)
    val = blobs(40, seed=1)
    expected = run((x[:48], y[:48]), val, batch_size=64)
    actual = run((x, torch.where(torch.arange(64) < 48, y, -1)), val, batch_size=64)
    assert torch.equal(expected.weight, actual.weight)


def test_the_best_on_validation_is_taken():
    result = run(blobs(200), blobs(100, seed=1, noise=3), lrs=(1e-7, 1e-2), weight_decays=(0.0, 0.1))
    assert len(result.table) == 4
    assert result.table.dtype.names == ("lr", "weight_decay", "accuracy")
    best = result.table["accuracy"].max()
    assert result.metrics["accuracy"] == best
    row = result.table[np.flatnonzero(result.table["accuracy"] == best)[0]]
    assert (row["lr"], row["weight_decay"]) == (result.lr, result.weight_decay)
    worst = run(
        blobs(200), blobs(100, seed=1, noise=3), lrs=(1e-7, 1e-2), weight_decays=(0.0, 0.1), mode="min"
    )
    assert worst.metrics["accuracy"] == result.table["accuracy"].min() < best


def test_same_seed_same_bits_and_no_global_state():
    data = blobs(100, noise=5), blobs(50, seed=1, noise=5)
    torch.manual_seed(1)
    first, state = run(*data), torch.get_rng_state()
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(2)
    second = run(*data)
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(first.bias, second.bias)
    assert first.table.tolist() == second.table.tolist()
    assert not torch.equal(first.weight, run(*data, seed=1).weight)


def test_a_configuration_does_not_depend_on_the_others(monkeypatch):
    data = blobs(100, noise=5), blobs(50, seed=1, noise=5)
    expected = run(*data)
    monkeypatch.setattr(probe_training, "NUMBERS_AT_ONCE", 1)
    split_result = run(*data)
    single_result = run(*data, lrs=(expected.lr,), weight_decays=(expected.weight_decay,))
    for result in (split_result, single_result):
        torch.testing.assert_close(result.weight, expected.weight)
        torch.testing.assert_close(result.bias, expected.bias)


TRUE, KNOWN = (torch.rand(50, 4, generator=torch.Generator().manual_seed(n)) < 0.5 for n in (1, 2))
KNOWN[:, 0] = True  # every row has a known label
MASKED = with_unknown(TRUE, KNOWN)
Y = blobs(50, noise=5)[1]


def masked_loss(logits):
    terms = functional.binary_cross_entropy_with_logits(logits, TRUE.to(logits.dtype), reduction="none")
    return terms[KNOWN].mean()


@pytest.mark.parametrize(
    ("task", "targets", "metric", "loss"),
    [
        ("single", Y, "accuracy", lambda logits: functional.cross_entropy(logits, Y)),
        ("multi_label", MASKED, "micro_f1", masked_loss),
    ],
)
def test_equals_adamw_on_one_plain_layer(task, targets, metric, loss):
    x, lr, decay, epochs = blobs(50, noise=5)[0], 0.01, 0.1, 3
    options = {"lrs": (lr,), "weight_decays": (decay,), "epochs": epochs, "batch_size": 50}
    result = run((x, targets), (x, targets), task=task, metric=metric, **options)
    z = ((x - x.mean(0)) / x.std(0, correction=0)).double()
    layer = torch.nn.Linear(6, 4).double()
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    groups = [{"params": [layer.weight], "weight_decay": decay}, {"params": [layer.bias], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        optimizer.zero_grad()
        loss(layer(z)).backward()
        optimizer.step()
        schedule.step()
    expected = layer(z).softmax(1) if task == "single" else layer(z).sigmoid()
    torch.testing.assert_close(predict(result, x), expected.float(), rtol=1e-3, atol=1e-4)


def label_vectors(n=50, labels=4, dim=6):
    generator = torch.Generator().manual_seed(3)
    vectors_NLD = torch.randn(n, labels, dim, generator=generator) * torch.arange(1, dim + 1) + 7
    vectors_NLD[:, 1, 2] = 5  # constant for one label
    return vectors_NLD


@pytest.mark.parametrize("numbers", [probe_training.NUMBERS_AT_ONCE, 60])
def test_a_layer_on_label_vectors_reads_the_vector_of_its_label(monkeypatch, numbers):
    monkeypatch.setattr(probe_training, "NUMBERS_AT_ONCE", numbers)  # 60 numbers are the vectors of two rows
    x_NLD, decay, epochs = label_vectors(), 0.1, 3
    options = {"lrs": (0.01, 0.05), "weight_decays": (decay,), "epochs": epochs, "batch_size": 50}
    result = run((x_NLD, MASKED), (x_NLD, MASKED), task="multi_label", metric="micro_f1", **options)
    assert result.weight.shape == (4, 6)
    scale_LD = x_NLD.std(0, correction=0)
    z_NLD = ((x_NLD - x_NLD.mean(0)) / torch.where(scale_LD > 0, scale_LD, 1)).double()
    weight_LD, bias_L = (
        torch.zeros(*shape, dtype=torch.float64).requires_grad_() for shape in ((4, 6), (4,))
    )
    groups = [{"params": [weight_LD], "weight_decay": decay}, {"params": [bias_L], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=result.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)

    def logits():
        rows = [[z_D @ w_D for z_D, w_D in zip(z_LD, weight_LD, strict=True)] for z_LD in z_NLD]
        return torch.stack([torch.stack(row) for row in rows]) + bias_L

    for _ in range(epochs):
        optimizer.zero_grad()
        masked_loss(logits()).backward()
        optimizer.step()
        schedule.step()
    torch.testing.assert_close(predict(result, x_NLD), logits().sigmoid().float(), rtol=1e-3, atol=1e-4)


def test_the_loss_is_the_mean_over_known_entries():
    logits = torch.randn(50, 2, 4, generator=torch.Generator().manual_seed(0))
    expected = sum(masked_loss(logits[:, h]) for h in range(2))
    torch.testing.assert_close(probe_training._loss(logits, MASKED), expected)
    rows, known_rows = LabelRows.from_dense(TRUE), with_unknown(TRUE, torch.ones_like(KNOWN))
    assert torch.equal(probe_training._loss(logits, rows), probe_training._loss(logits, known_rows))


def test_a_label_that_no_row_tells_is_not_learnt():
    """The label keeps its initial layer; if it were taken as negative, it would get a low bias."""
    known_NL = KNOWN.clone()
    known_NL[:, 2] = False
    x, rows = blobs(50, noise=5)[0], with_unknown(TRUE, known_NL)
    probe = run((x, rows), (x, rows), task="multi_label", metric="micro_f1", lrs=(0.1,), weight_decays=(0,))
    assert not probe.weight[2].any()
    assert float(probe.bias[2]) == 0
    assert float(probe.bias[0]) != 0


@pytest.mark.parametrize("numbers", [probe_training.NUMBERS_AT_ONCE, 250])
def test_settings_of_a_large_grid_that_are_behind_are_stopped(monkeypatch, numbers):
    data = blobs(200, noise=5), blobs(1000, seed=1, noise=5)
    options = {"lrs": (1e-7, 1e-3, 1e-2, 1e-1), "weight_decays": (0.0,)}
    full_result, steps, original = run(*data, **options), [], probe_training.ProbeLayers.add

    def counted(layers, x, gradient):
        steps.append(gradient.shape[1])
        original(layers, x, gradient)

    monkeypatch.setattr(probe_training, "LARGE", 1)
    monkeypatch.setattr(probe_training, "NUMBERS_AT_ONCE", numbers)
    monkeypatch.setattr(probe_training.ProbeLayers, "add", counted)
    result = run(*data, **options)
    assert len(result.table) == 4
    assert 140 <= sum(steps) <= 4 * 140 * (0.6 if numbers > 250 else 1)  # an epoch has 7 steps
    single_result = run(*data, **(options | {"lrs": (result.lr,)}))
    torch.testing.assert_close(result.weight, single_result.weight)
    assert result.metrics["accuracy"] >= np.median(full_result.table["accuracy"])


def test_the_layers_are_trained_where_the_rows_are_sent(monkeypatch):
    """The device `meta` computes nothing, but it refuses tensors of another device."""
    x, y = blobs(64)
    devices = []

    def score(weight, bias):
        devices.append((weight.device.type, bias.device.type))
        return 0.0

    monkeypatch.setattr(probe_training, "LARGE", 1)
    monkeypatch.setattr(
        probe_training, "build_optimizer", lambda _, weights, biases: AdamW([*weights, *biases])
    )
    rows = ProbeRows(x, y, device=torch.device("meta"))
    training = probe_training.GridTraining(
        rows, y, torch.arange(64), ProbeGrid([0.1], [0.0], 2, 32, 0), 4, score
    )
    weight_HOD, _, has_ended = training.layers()
    assert (weight_HOD.device.type, weight_HOD.shape, has_ended) == ("meta", (1, 4, 6), [True])
    assert devices == [("meta", "meta")]


def test_constant_features_and_divergence():
    x, y = blobs(60)
    x[:, 0] = 7.0
    assert run((x, y), (x, y)).metrics["accuracy"] == 1
    with pytest.raises(ValueError, match="diverged"):
        run((x * float("inf"), y), (x, y))
    with pytest.raises(ValueError, match="no training row"):
        run((x, torch.full_like(y, -1)), (x, y))


X, CLASS = blobs(20)
SETS = LabelRows.from_classes(CLASS, 4)


@pytest.mark.parametrize(
    ("train", "how", "error", "message"),
    [((X, CLASS[:15]), {}, ValueError, "20 rows of features for 15 of targets"),
     ((X, SETS.take(torch.arange(15))), {"task": "multi_label", "metric": "micro_f1"}, ValueError,
      "20 rows of features for 15 of targets"),
     ((X[:15], CLASS), {}, ValueError, "15 rows of features for 20 of targets"),
     ((X[:, :2], CLASS), {}, ValueError, r"of one D; found: \(20, 2\) and \(20, 6\)"),
     ((X[:, 0], CLASS), {}, ValueError, r"must be \(n, D\) or .* found: \(20,\)"),
     ((X, CLASS), {"n_classes": 3}, ValueError, "class 3 among the targets of 3 classes"),
     ((X, SETS), {"task": "multi_label", "n_classes": 3}, ValueError, "4 labels among the targets of 3"),
     ((X.numpy(), CLASS), {}, TypeError, "features .* must be a tensor; found: ndarray"),
     ((X, CLASS.tolist()), {}, TypeError, "a tensor of classes; found: list"),
     ((X, CLASS + 0.5), {}, ValueError, "classes must be integers"),
     ((X, CLASS), {"task": "multi"}, ValueError, "unknown task 'multi'; allowed: single"),
     ((X, CLASS), {"epochs": 0}, ValueError, "no rates, decays, epochs or rows .* epochs=0"),
     ((X, CLASS), {"lrs": ()}, ValueError, "no rates, decays, epochs or rows"),
     ((X, CLASS), {"mode": "maximum"}, ValueError, "mode 'maximum'; allowed: max, min")],
)  # fmt: skip
def test_rows_and_settings_that_do_not_fit_are_refused(train, how, error, message):
    with pytest.raises(error, match=message):
        run(train, (X, CLASS), **how)


def test_rows_that_a_probe_cannot_predict_are_refused():
    probe = run((X, CLASS), (X, CLASS))
    with pytest.raises(TypeError, match="must be a tensor; found: ndarray"):
        predict(probe, X.numpy())
    with pytest.raises(ValueError, match="features of 2 columns for a probe of 6"):
        predict(probe, X[:, :2])
