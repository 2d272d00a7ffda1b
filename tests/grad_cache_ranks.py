"""The encoder and losses of tests/test_grad_cache.py, and the work of each of its processes."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mlcl.grad_cache import cached_backward
from mlcl.losses import LOSSES, LearnedTemperature, build_loss
from mlcl.testing.loss_batches import loss_batch, take


def encoder(*layers, inputs=8):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 16), *layers, nn.Linear(16, 4)).double()


def parts_of(name, rows=slice(None), samples=4, gather=False):
    """Returns an encoder, a loss with a learned temperature, rows of a batch, and a function of embeddings.

    The function returns the loss of the rows' embeddings.
    """
    batch, model = loss_batch(samples=samples), encoder(nn.Tanh(), inputs=5)
    options = {"prototypes": (batch.width, 4)} if LOSSES[name].prototypes else {}
    temperature = LearnedTemperature(0.3)
    loss = build_loss(name, temperature=temperature, normalize=True, gather=gather, **options).double()
    index = torch.arange(len(batch.z))[rows]
    labels, samples = take(batch.labels(name), index), batch.sample_ids()[index]
    return model, loss, batch.z[index], lambda z: loss(z, labels, samples)


def gradients(module):
    return [parameter.grad for parameter in module.parameters()]


def work(rank, jobs):
    """Returns each job's loss, the gradients of its encoder by DDP, and those of the loss's parameters."""
    answers = []
    for name, split in jobs:
        start = sum(split[:rank])
        model, loss, x, value_of = parts_of(name, slice(start, start + split[rank]), gather=True)
        ddp_model = DistributedDataParallel(model)
        value = cached_backward(x.split(2), model, value_of, module=model, last=ddp_model)
        answers.append((value, gradients(model), gradients(loss)))
    return answers
