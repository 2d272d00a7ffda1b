"""The function that each process of tests/losses/test_queue.py runs; processes import it by its name."""

import torch

from mlcl.losses import build_loss, tiling
from mlcl.testing.loss_batches import loss_batch, take

SIZE = 9
SPLIT = (3, 2)
"""The number of samples that each of two processes has in a step."""


def steps(cases, rank=None):
    """Runs three steps of five samples with two views; returns values, the last gradient and the queue."""
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
