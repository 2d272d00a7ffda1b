"""The test suite of losses. The author of a loss writes its weights once more, in plain Python:

    from mlcl.testing.losses import LossTestCase

    class TestDice(LossTestCase):
        names = ("dice",)

        def weights(self, labels, i):
            positives = [p for p in range(len(labels)) if p != i and labels[p] & labels[i]]
            return {p: 2 * len(labels[p] & labels[i]) / (len(labels[p]) + len(labels[i])) / len(positives)
                    for p in positives}

If no installed package has the loss, `modules` names its module. For a loss that is not of the form
L_i = sum_p W_ip (-log p_ip), the author writes `definition` instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, get_args

import pytest
import torch
from torch import Tensor

from mlcl.losses import LOSSES, ContrastiveLoss, LearnedTemperature, build_loss, tiling
from mlcl.losses.loss import Engine, Reduction
from mlcl.testing import PluginTestCase, register_plugins
from mlcl.testing.loss_batches import Case, LossBatch, case_id, cases_of, loss_batch, take
from mlcl.testing.ranks import run_ranks

SPLIT = (9, 5)
"""The number of rows in each of the two processes of the distributed test."""
TAU = 0.3
"""The temperature in the distributed test."""


class LossTestCase(PluginTestCase):
    """The tests of losses. A subclass sets `names`, and defines `weights` or `definition`.

    Each loss is tested with its defaults and with each option changed; `more` are further cases. With
    `several_paths`, losses on paths are tested with several paths per row instead of one.
    """

    registry = LOSSES
    names: ClassVar[Sequence[str]] = ()
    more: ClassVar[Sequence[Case]] = ()
    several_paths: ClassVar[bool] = False

    def weights(self, labels: Sequence[Any], i: int, **options: Any) -> Mapping[int, float]:
        """Returns the weights W_ip of the anchor i by the loss's definition, keyed by row p; others are 0.

        Args:
            labels: The label of each row: a class (-1 is unknown), a frozenset of labels or paths, a list of
                ratings, a path, or a sample id.
            i: The index of the anchor.
            options: The options of the loss.
        """
        raise NotImplementedError("a subclass defines weights or definition")

    def definition(
        self, name: str, z: Sequence[Sequence[float]], labels: Sequence[Any], tau: float, **options: Any
    ) -> list[float] | float:
        """Returns the terms L_i of all anchors by the loss's definition.

        For a loss that is only defined for the whole batch it returns a float, the value of the reduction
        `mean`.
        """
        kind = LOSSES[name].similarity
        return [
            -math.fsum(
                weight * log_probability(z, i, p, tau, kind)
                for p, weight in self.weights(labels, i, **options).items()
            )
            for i in range(len(z))
        ]

    def is_differentiable(self, _name: str, _options: Mapping[str, Any]) -> bool:
        """Whether the gradient is the derivative of the value; a loss that detaches a part returns False."""
        return True

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrises tests by case, and those that take an `engine` also by engine."""
        with register_plugins(LOSSES, self.modules):
            names = self.read_list("names")
            cases = cases_of(names, self.more)
            engines = {name: engines_of(name) for name in names}
        if "engine" in metafunc.fixturenames:
            pairs = [(case, engine) for case in cases for engine in engines[case[0]]]
            ids = [f"{case_id(case)}-{engine}" for case, engine in pairs]
            metafunc.parametrize(("case", "engine"), pairs, ids=ids)
        elif "case" in metafunc.fixturenames:
            metafunc.parametrize("case", cases, ids=case_id)

    @pytest.fixture(autouse=True)
    def _set_small_tiles(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Sets tiles of four rows, so that a small batch has inner, outer and incomplete tiles."""
        monkeypatch.setattr(tiling, "TILE", 4)
        monkeypatch.setattr(tiling, "DEVICE_TILE", 4)

    @pytest.fixture
    def batch(self) -> LossBatch:
        """The batch that most tests use."""
        return self._make_batch()

    def test_the_mean_equals_the_definition(self, case: Case, batch: LossBatch) -> None:
        """Tests the mean against the definition, in every engine, to the precision of float64."""
        name, options = case
        for tau in (0.002, 1.3):
            expected = self._defined_value(case, batch, tau)
            expected = expected if isinstance(expected, float) else math.fsum(expected) / len(batch.z)
            assert expected != 0
            for engine in engines_of(name):
                value = call(build_loss(name, temperature=tau, engine=engine, **options), batch, batch.z)
                assert value.item() == pytest.approx(expected, rel=1e-12, abs=1e-12), engine

    def test_the_terms_equal_the_definition(self, case: Case, batch: LossBatch) -> None:
        """Tests each anchor's term against the definition, unless the loss is defined for the whole batch."""
        name, options = case
        expected = self._defined_value(case, batch, 0.2)
        if isinstance(expected, float):
            pytest.skip("defined for the whole batch")
        terms = call(build_loss(name, temperature=0.2, reduction="none", **options), batch, batch.z)
        assert terms.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)

    def test_the_gradient_is_that_of_the_value(self, case: Case) -> None:
        """Tests the dense engine's gradient by finite differences; `test_engines_agree` tests the others."""
        name, options = case
        if not self.is_differentiable(name, options):
            pytest.skip("the loss detaches a part of itself")
        batch = self._make_batch(samples=4, dim=3)
        loss = build_loss(name, temperature=0.5, engine="dense", **options)
        z = batch.z.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda z: call(loss, batch, z), (z,))

    def test_engines_agree(self, case: Case, engine: Engine) -> None:
        """Tests that engines agree in value and gradient, including that of a learned temperature."""
        batch = self._make_batch(samples=11)
        for tau in (0.001, 0.3):
            result, expected = (
                value_and_gradients(case, batch, kind, tau, reduction="mean_valid")
                for kind in (engine, "dense")
            )
            assert_equal(result, expected, 1e-11)

    def test_the_order_of_rows_is_irrelevant(self, case: Case, batch: LossBatch) -> None:
        """Tests that a permutation of the rows does not change the value."""
        name, options = case
        loss = build_loss(name, temperature=0.3, reduction="mean_valid", **options)
        order = torch.randperm(len(batch.z), generator=torch.Generator().manual_seed(1))
        shuffled_value = loss(batch.z[order], take(batch.labels(name), order), batch.sample_ids()[order])
        assert shuffled_value.item() == pytest.approx(call(loss, batch, batch.z).item(), rel=1e-12)

    @pytest.mark.parametrize("tau", [0.001, 0.3])
    def test_a_queue_adds_candidates(self, case: Case, engine: Engine, tau: float, batch: LossBatch) -> None:
        """Tests value and gradient with a queue against the terms of the anchors in one batch of all rows."""
        name, options = case
        if not LOSSES[name].queue:
            pytest.skip("the loss takes no queue")
        queued, results = torch.tensor(batch.samples) < 3, list[list[Tensor]]()
        for size in (len(queued), None):
            z, temperature = batch.z.clone().requires_grad_(), LearnedTemperature(tau).double()
            settings: dict[str, Any] = (
                {"engine": engine} if size else {"engine": "dense", "reduction": "none"}
            )
            loss = build_loss(name, temperature=temperature, queue=size, **settings, **options)
            if loss.queue is None:
                value = call(loss, batch, torch.where(queued[:, None], z.detach(), z))[~queued].mean()
            else:
                for rows in (queued, ~queued):
                    index = rows.nonzero()[:, 0]
                    value = loss(z[index], take(batch.labels(name), index), batch.sample_ids()[index])
                    loss.queue.push()
            gradients = torch.autograd.grad(value, [z, temperature.log_tau])
            results.append([value.detach(), *gradients])
        assert_equal(results[0], results[1], 1e-11)

    def test_the_reductions_agree(self, case: Case, batch: LossBatch) -> None:
        """Tests that the sum and both means follow from the terms."""
        name, options = case
        losses = {
            reduction: build_loss(name, reduction=reduction, **options) for reduction in get_args(Reduction)
        }
        values = {reduction: call(loss, batch, batch.z) for reduction, loss in losses.items()}
        terms, stats = values["none"], losses["mean"].stats
        assert stats is not None
        valid = len(terms) - round(float(stats.without_positive) * len(terms))
        assert terms.shape == (len(batch.z),)
        assert values["sum"].item() == pytest.approx(terms.sum().item())
        assert values["mean"].item() == pytest.approx(terms.sum().item() / len(terms))
        assert values["mean_valid"].item() == pytest.approx(terms.sum().item() / valid)

    def test_identical_rows_give_a_finite_gradient(
        self, case: Case, engine: Engine, batch: LossBatch
    ) -> None:
        """Tests that equal embeddings give a finite value and finite gradients in float32."""
        identical = replace(batch, z=batch.z[:1].repeat(len(batch.z), 1).float())
        for part in value_and_gradients(case, identical, engine, 0.005):
            assert part.isfinite().all()

    def test_one_row_alone_is_zero(self, case: Case) -> None:
        """Tests that a batch of one row, which has no candidates, gives the value 0 and gradients of 0."""
        name, options = case
        batch, index = self._make_batch(samples=2, views=1), torch.tensor([0])
        for reduction in get_args(Reduction):
            z, temperature = batch.z[:1].clone().requires_grad_(), LearnedTemperature(0.1)
            loss = build_loss(name, temperature=temperature, reduction=reduction, **options)
            value = loss(z, take(batch.labels(name), index), index)
            torch.autograd.backward(value.sum())
            assert value.abs().sum() == 0, reduction
            assert z.grad is not None
            assert z.grad.abs().sum() == 0, reduction
            assert temperature.log_tau.grad == 0, reduction

    def test_two_processes_equal_one(self) -> None:
        """Tests value and gradient in two processes against one process; all cases share a gloo group."""
        batch, cases = self._make_batch(), cases_of(self.names, self.more)
        ranks = run_ranks(_run_on_rank, (cases, batch, self.modules), len(SPLIT))
        for number, case in enumerate(cases):
            value, gradient, _ = value_and_gradients(case, batch, "auto", TAU)
            shares, gradients, _ = zip(*(rank[number] for rank in ranks), strict=True)
            # The mean over processes, which DDP takes, of values and of gradients is that of one process.
            mean_gradient = torch.cat(gradients) / len(ranks)
            message = partial("{}: {}".format, case_id(case))
            torch.testing.assert_close(torch.stack(shares).mean(), value, rtol=1e-12, atol=1e-12, msg=message)
            torch.testing.assert_close(mean_gradient, gradient, rtol=1e-11, atol=1e-12, msg=message)

    def _make_batch(self, **size: int) -> LossBatch:
        return loss_batch(**size, several_paths=self.several_paths)

    def _defined_value(self, case: Case, batch: LossBatch, tau: float) -> list[float] | float:
        name, options = case
        return self.definition(name, batch.z.tolist(), batch.plain_labels(name), tau, **options)


def engines_of(name: str) -> list[Engine]:
    """Returns the engines that a loss supports; `tiled` needs a closed form."""
    return ["dense", "auto"] if LOSSES[name].closed is None else ["dense", "tiled", "auto"]


def call(loss: ContrastiveLoss, batch: LossBatch, z: Tensor) -> Tensor:
    """Returns the loss of a batch with the embeddings `z` in place of its own."""
    name = loss.spec.name
    value: Tensor = loss(z, batch.labels(name), batch.sample_ids())
    return value


def value_and_gradients(
    case: Case, batch: LossBatch, engine: Engine, tau: float, rows: Tensor | None = None, **how: Any
) -> list[Tensor]:
    """Returns the value, and its gradients with respect to embeddings and the log of the temperature.

    `rows` are the indices of the rows to use, by default all; `how` are further options of `build_loss`.
    """
    name, options = case
    temperature = LearnedTemperature(tau).double()
    loss = build_loss(name, temperature=temperature, engine=engine, **how, **options)
    rows = torch.arange(len(batch.z)) if rows is None else rows
    z = batch.z[rows].clone().requires_grad_()
    value = loss(z, take(batch.labels(name), rows), batch.sample_ids()[rows])
    torch.autograd.backward(value)
    assert z.grad is not None
    assert temperature.log_tau.grad is not None
    return [value.detach(), z.grad, temperature.log_tau.grad]


def _run_on_rank(
    rank: int, cases: Sequence[Case], batch: LossBatch, modules: Sequence[str]
) -> list[list[Tensor]]:
    """Returns the values and gradients of all cases in one process, which has `SPLIT[rank]` rows."""
    tiling.TILE = 4
    rows = torch.split(torch.arange(sum(SPLIT)), list(SPLIT))[rank]
    with register_plugins(LOSSES, modules):
        return [value_and_gradients(case, batch, "auto", TAU, rows, gather=True) for case in cases]


def assert_equal(actual: Iterable[Tensor], expected: Iterable[Tensor], tolerance: float) -> None:
    """Asserts that each number x of a tensor is within `tolerance` (s + |y|) of the expected number y.

    The scale s is the largest |y| in the tensor, but at least 1.
    """
    for value, target in zip(actual, expected, strict=True):
        scale = max(1.0, float(target.abs().max()))
        torch.testing.assert_close(value, target, rtol=tolerance, atol=tolerance * scale)


def similarity(a: Sequence[float], b: Sequence[float], kind: str = "dot") -> float:
    """Returns the dot product of two vectors, or minus their Euclidean distance if `kind` is not `dot`."""
    if kind == "dot":
        return math.fsum(x * y for x, y in zip(a, b, strict=True))
    return -math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def log_probability(z: Sequence[Sequence[float]], i: int, p: int, tau: float, kind: str = "dot") -> float:
    """Returns log p_ip = s_ip / tau - log sum_{a != i} exp(s_ia / tau) of the embeddings z."""
    logits = [similarity(z[i], z[a], kind) / tau for a in range(len(z)) if a != i]
    top = max(logits)
    return similarity(z[i], z[p], kind) / tau - top - math.log(math.fsum(math.exp(x - top) for x in logits))
