"""Tests of kernels against tiles, natively on a GPU, and otherwise in Triton's interpreter."""

import copy

import pytest
import torch
from losses.oracles import CASES

from mlcl.losses import LOSSES, LearnedTemperature, build_loss, fused, joint_loss, sets, tiling
from mlcl.losses.gradients import DotGradients
from mlcl.losses.similarities import Candidates, Similarities, round_to_tf32
from mlcl.losses.softmax import Softmax
from mlcl.losses.weights.base import BatchRanks
from mlcl.testing.loss_batches import case_id

pytest.importorskip("triton", minversion="3.6", reason="the kernels need Triton 3.6")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FIRST = dict(reversed(CASES)).items()
DOTS = [
    (name, options)
    for name, options in FIRST
    if LOSSES[name].similarity == "dot" and LOSSES[name].closed and not LOSSES[name].own_softmax
]
WEIGHTS = 5e-4
"""The relative error of gradients, since kernels, and tiles on a GPU, round their weights to TF32."""


@pytest.fixture
def both(monkeypatch):
    """Returns a function that calls a function with tiles and with kernels, and pairs the tensors of both."""

    def call(function):
        monkeypatch.setattr(fused, "has_kernels", lambda _device: False)
        tiles = function()
        loads = []
        monkeypatch.setattr(fused, "has_kernels", lambda _device: True)
        load_kernels = fused.load_kernels
        monkeypatch.setattr(fused, "load_kernels", lambda: (loads.append(1), load_kernels())[1])
        kernels = function()
        assert loads
        return zip(kernels, tiles, strict=True)

    # Only a device rounds the rows of products in TF32.
    monkeypatch.setattr("mlcl.losses.similarities.tiling.is_host", lambda _device: False)
    return call


def assert_near(pairs, tolerance=2e-6):
    """Checks pairs of tensors: matrices are gradients of rows, other sums have the precision of float32."""
    for actual, expected in pairs:
        rtol = WEIGHTS if actual.ndim == 2 else tolerance
        assert torch.isfinite(actual).all()
        assert (actual - expected).norm() <= rtol * expected.norm() + 1e-7


def solved(name, options, rows, tau, **how):
    torch.manual_seed(0)
    z = rows.z.float().to(DEVICE).requires_grad_()
    loss = build_loss(name, temperature=copy.deepcopy(tau), engine="tiled", products="tf32", **how, **options)
    loss.to(DEVICE)
    loss(z, rows.labels(name), rows.sample_ids()).backward()
    value = loss(z.detach(), rows.labels(name), rows.sample_ids())
    return value.detach(), z.grad, *(parameter.grad for parameter in loss.parameters())


@pytest.mark.parametrize("case", DOTS, ids=case_id)
def test_every_loss_of_dot_products_is_that_of_tiles(case, rows, both):
    name, options = case
    assert_near(both(lambda: solved(name, options, rows, LearnedTemperature(0.1), normalize=True)))


@pytest.mark.parametrize("tau", [0.0005, 0.3])
def test_large_logits_do_not_overflow(tau, rows, both):
    assert_near(both(lambda: solved("supcon", {}, rows, tau)), 2e-4)


def test_two_temperatures_share_the_products(rows, both):
    def joint():
        z = rows.z.float().to(DEVICE).requires_grad_()
        taus = [LearnedTemperature(tau).to(DEVICE) for tau in (0.1, 0.3)]
        losses = [
            build_loss(name, temperature=tau, engine="tiled", normalize=True, products="tf32")
            for name, tau in zip(("any", "simdis"), taus, strict=True)
        ]
        total, _ = joint_loss(losses, [0.3, 0.7], z, [rows.labels("any")] * 2)
        total.backward()
        return total.detach(), z.grad, *(tau.log_tau.grad for tau in taus)

    assert_near(both(joint))


@pytest.mark.parametrize("dim", [5, 24])
@pytest.mark.parametrize(("own", "prototypes"), [(300, 0), (200, 0), (140, 9)])
def test_many_blocks_with_rows_of_other_processes_and_prototypes(own, prototypes, dim, both):
    """The rows after `own` belong to other processes, which give their R and logsumexp."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(300 + prototypes, dim, generator=generator).to(DEVICE)
    values = torch.rand(2, 2, len(z), generator=generator).to(DEVICE)
    values[0] += 3
    values[:, :, 300:] = 0
    ranks = BatchRanks(own, torch.float32, z.device)

    def passes():
        similarities = Similarities(Candidates(z, ranks, "dot", prototypes, False, "tf32"), 2.0)
        softmax_class = fused.FusedSoftmax if fused.serves(similarities) else Softmax
        softmax = softmax_class(similarities, [1.0, 2.5], 0.4, moments=True)
        gradients = DotGradients(similarities, [], [])
        logsumexp = softmax.logsumexp()
        values[0, :, :own] = logsumexp
        softmax.set_rows(values)
        softmax.add_gradient(gradients)
        return *logsumexp, gradients.gradient, gradients.prototype_gradient, softmax.entropies()

    assert_near(both(passes))


def test_only_narrow_dot_products_are_served(monkeypatch):
    monkeypatch.setattr(fused, "has_kernels", lambda _device: True)
    monkeypatch.setattr(tiling, "is_host", lambda _device: False)

    def served(dim, similarity, products, dtype=torch.float32):
        z = torch.randn(4, dim, dtype=dtype)
        return fused.serves(Similarities(Candidates(z, BatchRanks(4), similarity, 0, False, products), 1.0))

    assert served(256, "dot", "bf16")
    assert served(128, "dot", "tf32")
    assert not served(257, "dot", "bf16")
    assert not served(129, "dot", "tf32")
    assert not served(8, "dot", "exact")
    assert not served(8, "euclidean", "bf16")
    assert not served(8, "dot", "bf16", torch.float64)


def test_a_processor_has_no_kernels():
    assert not fused.has_kernels(torch.device("cpu"))


@pytest.mark.parametrize(
    ("triton", "problem"), [("3.5.1", "Triton 3.5.1 is older than 3.6"), ("3.6.0", "no C compiler")]
)
def test_a_gpu_where_kernels_do_not_run_computes_in_tiles(triton, problem, monkeypatch, caplog):
    def load():
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (9, 0))
    for name in ("eye", "ones"):
        monkeypatch.setattr(torch, name, lambda *_sizes, **_options: None)
    monkeypatch.setattr(fused, "version", lambda _name: triton)
    monkeypatch.setattr(fused, "load_kernels", load)
    assert not fused.has_kernels.__wrapped__(torch.device("cuda"))
    assert problem in caplog.text


def test_tf32_has_ten_bits_and_rounds_to_the_nearest():
    bit = 2.0**-10
    values = torch.tensor([1.0, 1 + bit, 1 + 0.49 * bit, 1 + 0.51 * bit, -3 - 1.51 * bit, 0.0])
    assert round_to_tf32(values).tolist() == [1.0, 1 + bit, 1.0, 1 + bit, -3 - 2 * bit, 0.0]
    z = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert ((round_to_tf32(z) - z).abs() <= bit / 2 * z.abs()).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_parts_of_large_groups_add_up(weighted, monkeypatch):
    monkeypatch.setattr(sets, "PART", 4)
    counts = torch.tensor([0, 13, 1, 0, 8, 4, 0])
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    generator = torch.Generator().manual_seed(0)
    row, table = torch.randint(9, (26,), generator=generator), torch.randn(9, 3, generator=generator)
    weights = torch.rand(26, generator=generator) if weighted else None
    expected = sets.bag(row, offsets, table, weights)
    monkeypatch.setattr(tiling, "is_host", lambda _device: False)
    torch.testing.assert_close(sets.group_bag(row, offsets, table, weights), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("case", DOTS, ids=case_id)
@pytest.mark.parametrize("dim", [64, 128, 200])
def test_bf16_on_a_gpu_is_that_of_tiles(case, dim, make, both):
    name, options = case
    rows = make(samples=300)
    projection = torch.randn(rows.z.shape[1], dim, generator=torch.Generator().manual_seed(0))

    def solve():
        z = (rows.z.float() @ projection).bfloat16().cuda().requires_grad_()
        loss = build_loss(
            name, temperature=LearnedTemperature(0.1), engine="tiled", normalize=True, **options
        )
        value = loss.cuda()(z, rows.labels(name), rows.sample_ids())
        value.backward()
        return value.detach(), loss.temperature.log_tau.grad, z.grad.float()

    (value, expected), *gradients = both(solve)
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    assert_near(gradients, 1e-3)
