"""The function that each process of tests/losses/test_distributed.py runs; processes import it by name."""

import contextlib
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mlcl.labels import LabelRows
from mlcl.losses import LearnedTemperature, build_loss, gather_rows, tiling
from mlcl.testing.loss_batches import take

COLLECTIVES = ("all_gather", "all_reduce", "all_gather_into_tensor", "broadcast", "all_gather_object")


class Model(nn.Module):
    """A linear encoder and a loss with a learned temperature, all in float64."""

    def __init__(self, dim, name, options, gather=False):
        super().__init__()
        self.encoder = nn.Linear(dim, 3, bias=False).double()
        nn.init.orthogonal_(self.encoder.weight, generator=torch.Generator().manual_seed(0))
        temperature = LearnedTemperature(0.3).double()
        torch.manual_seed(0)
        self.loss = build_loss(name, temperature=temperature, gather=gather, **options).double()

    def forward(self, x, labels, sample_ids):
        return self.loss(self.encoder(x), labels, sample_ids)

    def gradients(self):
        return [parameter.grad.clone() for parameter in self.parameters()]


def work(rank, jobs):
    tiling.TILE = 4
    joint_answers = _together(rank, next(job for job in jobs if job["loss"][0] == "simdis"))
    answers = [_answer(rank, job) for job in jobs]
    return {
        "answers": answers,
        "alone": _alone(rank, jobs[0]),
        "widths": _widths(rank),
        "together": joint_answers,
    }


def _local(rank, job):
    start = sum(job["split"][:rank])
    rows = torch.arange(start, start + job["split"][rank])
    return job["x"][rows], take(job["labels"], rows), take(job["samples"], rows)


def _answer(rank, job):
    model = Model(job["x"].shape[1], *job["loss"], gather=True)
    # The name keeps the wrapper, without which gradients are not averaged.
    ddp_model = DistributedDataParallel(model)
    value = ddp_model(*_local(rank, job))
    with _silence(model.loss.tiled):
        value.sum().backward()
    return {"value": value.detach(), "gradients": model.gradients(), "anchors": model.loss.stats.anchors}


def _alone(rank, job):
    """Returns the value and the gradients of the own rows with gather=False, which calls no collective."""
    model = Model(job["x"].shape[1], *job["loss"], gather=False)
    with _silence():
        value = model(*_local(rank, job))
        value.backward()
    return {"value": value.detach(), "gradients": model.gradients()}


def _together(rank, job):
    """Returns values and gradients of a dense and a tiled loss on two widths, gathered apart and at once."""
    x, labels, samples = _local(rank, job)
    losses = [
        build_loss("simdis", gather=True, engine=engine, normalize=True) for engine in ("dense", "tiled")
    ]
    answers = []
    for joint in (False, True):
        embeddings = [x[:, :3].clone().requires_grad_(), x.clone().requires_grad_()]
        groups, label_groups = [[loss] for loss in losses], [[labels], [labels]]
        rows = gather_rows(groups, embeddings, label_groups, samples) if joint else [[None], [None]]
        inputs = zip(losses, embeddings, rows, strict=True)
        total = sum(loss(z, labels, samples, rows=loss_rows) for loss, z, (loss_rows,) in inputs)
        total.backward()
        answers.append([total.detach(), *(z.grad for z in embeddings)])
    return answers


@contextlib.contextmanager
def _silence(wanted=True):
    """Makes the collectives of torch.distributed raise; those of DDP are not affected."""
    with contextlib.ExitStack() as stack:
        for name in COLLECTIVES if wanted else ():
            stack.enter_context(mock.patch.object(dist, name, side_effect=AssertionError(name)))
        yield


def _widths(rank):
    try:
        build_loss("any", gather=True)(torch.eye(2), LabelRows.from_lists([[0], [0]], 1 + rank))
    except ValueError as error:
        return str(error)
    return "no error"
