"""The work of each process in tests/losses/test_queue.py; imported there by its name."""

import torch

from mlcl.losses import build_loss, tiling
from mlcl.testing.loss_batches import loss_batch, take

SIZE = 9
SPLIT = (3, 2)
"""The samples of a step in each of two processes."""


def steps(cases, rank=None):
    """Three steps of five samples, with two views each: values, the last gradient, and the queue's rows."""
    tiling.TILE, answers = 4, []
    rows = loss_batch(samples=12)
    for name, options in cases:
        loss, values = build_loss(name, temperature=0.3, queue=SIZE, gather=True, **options), []
        for first in (0, 4, 7):
            samples = range(first, first + 5)
            if rank is not None:
                samples = samples[: SPLIT[0]] if rank == 0 else samples[SPLIT[0] :]
            index = torch.tensor([row for row, sample in enumerate(rows.samples) if sample in samples])
            z = rows.z.clone().requires_grad_()
            value = loss(z[index], take(rows.labels(name), index), rows.sample_ids()[index])
            value.backward()
            values.append(value.detach())
            loss.queue.push()
        state = loss.queue.state()
        answers.append(
            {
                "values": values,
                "gradient": z.grad,
                "rows": state["embeddings"],
                "samples": state["sample_ids"],
            }
        )
    return answers


def work(rank, cases):
    return steps(cases, rank)
