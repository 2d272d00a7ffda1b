"""Modules of tests/integrations/test_lightning.py, and the function that each process runs."""

import lightning
import torch
from integrations.ranks import ROWS, gradients_of, launched, rows_of
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader

from mlcl.integrations.lightning import GradCacheMixin
from mlcl.losses import LearnedTemperature, build_loss
from mlcl.samplers import LabelBatchSampler

QUIET = {
    "accelerator": "cpu", "max_epochs": 1, "logger": False, "enable_checkpointing": False,
    "enable_progress_bar": False, "enable_model_summary": False,
}  # fmt: skip


def batch(number, rows=slice(None)):
    """Returns some of the eight rows of a batch, as values and label sets."""
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(ROWS, 6, dtype=torch.float64, generator=generator)
    return x[rows], torch.randint(2, (ROWS, 3), generator=generator)[rows]


class Plain(lightning.LightningModule):
    """A module with an encoder and a loss with a learned temperature, which keeps all gradients."""

    def __init__(self, gather=False, unused=False):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)).double()
        self.head = nn.Linear(4, 2) if unused else None
        temperature = LearnedTemperature(0.3).double()
        self.loss = build_loss("mulsupcon", temperature=temperature, normalize=True, gather=gather)
        self.seen, self.values = [], []

    def training_step(self, found, _index):
        return self.loss(self.encoder(found[0]), found[1])

    def on_before_optimizer_step(self, _optimizer):
        self.seen.append(gradients_of(self))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Cached(GradCacheMixin, Plain):
    """A module that computes its loss over several batches, through the gradient cache."""

    def __init__(self, every, **options):
        super().__init__(**options)
        self.automatic_optimization, self.every = False, every

    def training_step(self, found, _index):
        if batches := self.collect(found, self.every):
            labels = torch.cat([y for _, y in batches])
            optimizer = self.optimizers()
            optimizer.zero_grad()
            value = self.cached_backward(
                [x for x, _ in batches], self.encoder, lambda z: self.loss(z, labels)
            )
            self.values.append(value)
            optimizer.step()


def fit(model, batches, **options):
    lightning.Trainer(**{**QUIET, **options}).fit(model, DataLoader(batches, batch_size=None))
    return model


def module_of(job, gather=False):
    if job["kind"] == "cached":
        return Cached(len(job["splits"]), gather=gather, unused=job["unused"])
    return Plain(gather, job["unused"])


def sampled(**options):
    """Returns the row numbers of this process's batches from the label sampler, or the trainer's error."""

    class Rows(Plain):
        def training_step(self, found, _index):
            self.values.append(found.tolist())
            return self.encoder(found[:, None].double().expand(-1, 6)).sum()

    loader = DataLoader(torch.arange(20), batch_sampler=LabelBatchSampler(list(range(4)) * 5, 8))
    strategy = DDPStrategy(cluster_environment=LightningEnvironment(), find_unused_parameters=True)
    trainer = lightning.Trainer(**QUIET, devices=2, strategy=strategy, **options)
    model = Rows()
    try:
        trainer.fit(model, loader)
    except TypeError as error:
        return str(error)
    return model.values


def work(rank, jobs):
    """Returns the gradients and values of each job's first step, and the rows that the sampler draws."""
    answers = []
    with launched(rank):
        for job in jobs:
            strategy = DDPStrategy(
                cluster_environment=LightningEnvironment(), find_unused_parameters=job["unused"]
            )
            accumulation = {} if job["kind"] == "cached" else {"accumulate_grad_batches": len(job["splits"])}
            batches = [batch(n, rows_of(rank, split)) for n, split in enumerate(job["splits"])]
            options = {"devices": 2, "strategy": strategy, "use_distributed_sampler": False, **accumulation}
            model = fit(module_of(job, gather=True), batches, **options)
            answers.append((model.seen, model.values))
        return answers, sampled(use_distributed_sampler=False), sampled()
