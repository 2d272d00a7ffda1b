"""Tests of products in bfloat16 and TF32, and of steps of the engine that must not wait for a device."""

import contextlib
import copy

import pytest
import torch
from losses.devices import DEVICE, Device
from losses.oracles import CASES, FIRST
from losses.waits import Waits

from mlcl.losses import LOSSES, LearnedTemperature, build_loss, engine, joint_loss, sets, similarities, tiling
from mlcl.testing.loss_batches import case_id
from mlcl.testing.losses import assert_equal

pytestmark = pytest.mark.usefixtures("small_tiles")
TAU = 0.25
"""A temperature whose square root is a power of two, so that dividing by it does not round."""
BY_LABELS = ["all", "any", "himulcon", "jaccard", "jscl", "mulsupcon", "simclr", "simdis", "supcon"]
"""Losses by dot products, without prototypes, whose weights depend only on the labels."""
TILED = {"engine": "tiled", "normalize": True}
HOW = {
    "few labels": (TILED, 256),
    "many labels": (TILED, 2),
    "small": ({"normalize": True}, 256),
    "unknown": ({"engine": "tiled", "temperature": LearnedTemperature(0.1), "reduction": "mean_valid"}, 256),
}
"""Options of a loss, and `sets.FEW`; with "unknown", the host knows neither temperature nor lengths."""
into_float32 = pytest.mark.skipif(
    not hasattr(torch.ops.aten.mm, "dtype"), reason="this PyTorch has no product of bfloat16 into float32"
)
every_case = pytest.mark.parametrize("case", CASES, ids=case_id)
by_labels = pytest.mark.parametrize("case", [c for c in CASES if c[0] in BY_LABELS], ids=case_id)


@contextlib.contextmanager
def bf16_into_float32():
    """Gives the CPU torch.mm of bfloat16 matrices with float32 results, which PyTorch has only for GPUs."""
    library = torch.library.Library("aten", "IMPL", "CPU")
    library.impl("mm.dtype", lambda a, b, dtype: torch.mm(a.to(dtype), b.to(dtype)))
    library.impl("mm.dtype_out", lambda a, b, dtype, *, out: torch.mm(a.to(dtype), b.to(dtype), out=out))
    try:
        yield
    finally:
        library._destroy()


def solved(case, rows, z, **how):
    """Returns the value and the gradient."""
    name, options = case
    z = z.clone().requires_grad_()
    loss = build_loss(name, temperature=TAU, engine="tiled", normalize=True, **how, **options)
    value = loss(z, rows.labels(name), rows.sample_ids())
    value.backward()
    return value.detach().double(), z.grad.double()


def error(found, exact):
    return ((found - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize(
    ("case", "native"),
    [(case, False) for case in CASES] + [pytest.param(case, True, marks=into_float32) for case in FIRST],
    ids=lambda value: case_id(value) if isinstance(value, tuple) else "native" if value else "rounded",
)
def test_bf16_rows_give_the_loss_of_rounded_rows(case, native, rows, monkeypatch):
    """The value is exact for rounded rows; the gradient has the error of weights with eight bits."""
    name, options = case
    unit_z = torch.nn.functional.normalize(rows.z.bfloat16().float(), dim=1)
    distances = LOSSES[name].similarity == "euclidean"
    rounded_z = unit_z if distances else unit_z.bfloat16().float()
    loss_options = {"temperature": TAU, "engine": "tiled", **options}
    expected = build_loss(name, **loss_options)(rounded_z, rows.labels(name), rows.sample_ids())
    gradient = solved(case, rows, rows.z.bfloat16().double())[1]
    monkeypatch.setattr(similarities, "multiplies_into_float32", lambda _device: native)
    with bf16_into_float32() if native else contextlib.nullcontext():
        actual = solved(case, rows, rows.z.bfloat16())
    assert actual[0].item() == pytest.approx(expected.item(), rel=1e-6)
    assert error(actual[1], gradient) < 0.02


def test_large_batches_are_multiplied_in_bf16_and_small_ones_exactly():
    z = torch.randn(300, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.arange(300) % 7
    loss = build_loss("supcon", normalize=True)
    assert loss(z[:256], labels[:256]) == loss(z[:256].float(), labels[:256])
    rounded_value, exact_value = loss(z, labels), loss(z.float(), labels)
    assert rounded_value != exact_value
    assert rounded_value.item() == pytest.approx(exact_value.item(), rel=1e-3)


def test_tf32_is_what_is_set_while_the_engine_runs(rows, monkeypatch):
    products = []
    original = engine.solve
    monkeypatch.setattr(
        engine, "solve", lambda *a, **k: (products.append(a[0].products), original(*a, **k))[1]
    )
    expected = solved(("supcon", {}), rows, rows.z.float())
    assert solved(("supcon", {}), rows, rows.z.float(), products="tf32")[0] == expected[0]  # exact on a CPU
    assert products == ["exact", "tf32"]
    with pytest.raises(ValueError, match=r"unknown products 'fp8'.*allowed: exact, tf32"):
        build_loss("supcon", products="fp8")


@pytest.mark.parametrize(
    ("products_", "device", "amx", "precision"),
    [
        ("exact", "cuda", True, "ieee"),
        ("tf32", "cuda", True, "tf32"),
        ("bf16", "cuda", True, "tf32"),
        ("bf16", "cpu", True, "bf16"),
        ("bf16", "cpu", False, "ieee"),
    ],
)
def test_the_precision_holds_within_and_not_after(products_, device, amx, precision, monkeypatch):
    monkeypatch.setattr(similarities, "has_amx", lambda: amx)
    calls = []
    monkeypatch.setattr(similarities, "exchange_precision", lambda *args: calls.append(args) or "before")
    device = torch.device(device)
    with similarities.matmul_precision(products_, device):
        assert calls == [(device, precision)]
    assert calls == [(device, precision), (device, "before")]


@by_labels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_engine_waits_for_no_device(case, dtype, rows, monkeypatch):
    """No pass over the tiles waits, nor do the closed forms or the backward."""
    counts, solve = [], engine.solve

    def watched(*arguments, **options):
        with Waits() as waits:
            solution = solve(*arguments, **options)
        counts.append(waits.count)
        return solution

    monkeypatch.setattr(engine, "solve", watched)
    name, options = case
    z = rows.z.to(dtype).requires_grad_()
    value = build_loss(name, engine="tiled", normalize=True, **options)(
        z, rows.labels(name), rows.sample_ids()
    )
    with Waits() as waits:
        value.backward()
    assert [*counts, waits.count] == [{}, {}]


@pytest.mark.parametrize(
    ("case", "how"),
    [(case, how) for case in CASES for how in (HOW if case in FIRST else ["unknown"])],
    ids=lambda value: value if isinstance(value, str) else case_id(value),
)
def test_labels_in_the_hosts_memory_keep_no_step_waiting(case, how, make, monkeypatch):
    """Every case runs with labels in the host's memory, and the first case of each loss with all options."""
    (name, options), (how, limit), rows = case, HOW[how], make(samples=3)
    monkeypatch.setattr(sets, "FEW", limit)
    monkeypatch.setattr(tiling, "_size_by_memory", lambda _device: 4)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    with Device() as device:
        loss = build_loss(name, **copy.deepcopy(how), **options).to(DEVICE)
        z = rows.z.float().to(DEVICE, non_blocking=True)
        device.waits.clear()
        assert loss(z, rows.labels(name), rows.sample_ids()).device == DEVICE
    assert device.waits == []


@every_case
def test_what_a_device_computes_without_a_look_is_what_a_host_computes(case, rows, monkeypatch):
    """A device leaves room for labels that are not counted, shifts exponentials, and skips no levels."""
    monkeypatch.setattr(sets, "FEW", 2)
    host_values = solved(case, rows, rows.z)
    monkeypatch.setattr(tiling, "is_host", lambda _device: False)
    for device_value, host_value in zip(solved(case, rows, rows.z), host_values, strict=True):
        torch.testing.assert_close(device_value, host_value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("apart", [0, 1e-5, 1e-3, 0.1])
def test_distances_on_a_device_are_exact_without_a_look(apart, rows, monkeypatch):
    """The rows are float32 and far from the origin; some are equal or hardly differ."""
    z = rows.z.float() + 5
    z[1::2] = z[::2] + apart * rows.z[1::2].float()
    results = []
    for embeddings in (z.double(), z):
        embeddings = embeddings.clone().requires_grad_()
        value = build_loss("knn", temperature=TAU, engine="tiled")(embeddings, rows.labels("knn"))
        value.backward()
        results.append((value.item(), embeddings.grad.double()))
        monkeypatch.setattr(tiling, "is_host", lambda _device: False)
    assert results[1][0] == pytest.approx(results[0][0], rel=1e-6)
    assert error(results[1][1], results[0][1]) < 1e-5


@pytest.mark.parametrize("reduction", ["mean", "mean_valid"])
def test_a_temperature_that_the_host_does_not_know_is_exact(reduction, rows, monkeypatch):
    results = []
    for on_host in (True, False):
        monkeypatch.setattr(tiling, "is_host", lambda _device, on_host=on_host: on_host)
        taus = [LearnedTemperature(tau).double() for tau in (0.1, 0.3)]
        named_taus = zip(("any", "simdis"), taus, strict=True)
        losses = [build_loss(name, temperature=tau, reduction=reduction) for name, tau in named_taus]
        z = rows.z.clone().requires_grad_()
        total, _ = joint_loss(losses, [0.3, 0.7], z, [rows.labels("any")] * 2)
        total.backward()
        results.append([total.detach(), z.grad, *(tau.log_tau.grad for tau in taus)])
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-12)


def test_a_device_without_values_tells_reads_from_the_hosts_own():
    with Device() as device:
        host = torch.tensor([2, 1, 2])
        device_tensor = host.to(DEVICE, non_blocking=True)
        assert torch.unique(host).tolist() == [1, 2]
        assert device.waits == []
        host.to(DEVICE)
        device_tensor.to("cpu")
        assert device.waits == ["copy to cuda", "copy to cpu"]
        for read in (
            lambda: int(device_tensor[0]),
            lambda: torch.unique(device_tensor),
            lambda: device_tensor + host,
        ):
            with pytest.raises(Exception, match=r"_local_scalar_dense|_unique2|[Dd]evice"):
                read()


def test_a_learned_temperature_and_rows_of_any_length_are_one_number_each(rows):
    """A learned temperature or rows of any length cost one read beyond those that the labels need."""
    labels, counts = rows.labels("supcon"), []
    for normalize, tau in ((True, 0.1), (False, 0.1), (True, LearnedTemperature(0.1))):
        loss = build_loss("supcon", temperature=tau, engine="tiled", normalize=normalize)
        with Waits() as waits:
            loss(rows.z, labels)
        counts.append(waits.count["_local_scalar_dense"])
    assert counts == [counts[0], counts[0] + 1, counts[0] + 1]


def test_waits_are_seen():
    z = torch.arange(4.0)
    with Waits() as waits:
        assert z[z > 1].sum().item() == 5
        assert z.tolist()
        torch.unique(z)
    assert waits.count == {"index by bool": 1, "_local_scalar_dense": 1, "tolist": 1, "_unique2": 1}


def test_tiles_of_a_gpu_fit_its_free_memory():
    gib = 1 << 30
    assert tiling.largest_tile(8 * gib) == 4096
    for free_bytes in (1, gib // 16, gib, 8 * gib, 139 * gib):
        tile = tiling.largest_tile(free_bytes)
        assert tile & (tile - 1) == 0
        assert tile == tiling.LEAST_DEVICE_TILE or tile**2 * tiling.BUFFERS <= free_bytes * tiling.SHARE
        assert (2 * tile) ** 2 * tiling.BUFFERS > free_bytes * tiling.SHARE


@pytest.mark.gpu
@every_case
@pytest.mark.parametrize("tau", [0.001, 0.3])
def test_a_gpu_gives_what_a_cpu_gives(case, tau, rows):
    name, options = case
    answers = []
    for device in ("cpu", "cuda"):
        z = rows.z.detach().clone().to(device).requires_grad_()
        labels = rows.labels(name)
        loss = build_loss(name, temperature=tau, engine="tiled", **options).to(device)
        value = loss(z, None if labels is None else labels.to(device), rows.sample_ids().to(device))
        value.backward()
        answers.append((value.detach().cpu(), z.grad.cpu()))
    cpu, gpu = answers
    assert_equal(gpu, cpu, 1e-10)


@pytest.mark.gpu
@pytest.mark.parametrize("case", [c for c in CASES if LOSSES[c[0]].on_host], ids=case_id)
def test_labels_in_the_hosts_memory_give_the_same_without_waiting(case, rows):
    name, options = case
    if name == "knn":
        pytest.skip("distances are read in their tiles")
    labels, samples = rows.labels(name), rows.sample_ids()
    loss = build_loss(name, engine="tiled", normalize=True, **options)
    expected = loss(rows.z, labels, samples)
    z = rows.z.cuda().requires_grad_()
    loss.cuda()(z, labels, samples)  # the first step asks for the free memory
    torch.cuda.set_sync_debug_mode("error")
    try:
        value = loss(z, labels, samples)
        value.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert value.item() == pytest.approx(expected.item(), rel=1e-10)
