"""Models and steps of tests/integrations/test_transformers.py, and the function that each process runs."""

import torch
from integrations.ranks import gradients_of, launched, rows_of
from tiny_models import token_batch
from torch.utils.data import DataLoader
from transformers import BertModel, Trainer, TrainerCallback, TrainingArguments

from mlcl.integrations.transformers import Embedder, TrainerLoss
from mlcl.losses import LearnedTemperature, build_loss

LENGTHS = [3, 6, 4, 8, 5, 7, 8, 3]
PATHS = [[0, 0], [0, 1], [0, 1], [1, 2], [1, 2], [1, -1], [0, 0], [-1, -1]]
MULTI_HOT = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0], [1, 0, 1], [1, 1, 1], [0, 0, 1]]
LABELS = {"mulsupcon": torch.tensor(MULTI_HOT, dtype=torch.bool), "himulcon": torch.tensor(PATHS)}


def bert(folder):
    """Returns a tiny BERT in float64, without dropout, from a folder that `tiny_models.tiny_model` made."""
    options = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    return BertModel.from_pretrained(folder, **options).double()


def batch(name, rows=slice(None)):
    """Returns a collated batch of some of eight rows."""
    ids, mask = token_batch(LENGTHS, 8)
    return {"input_ids": ids[rows], "attention_mask": mask.long()[rows], "labels": LABELS[name][rows]}


def arguments(folder, **options):
    defaults = {"use_cpu": True, "report_to": [], "save_strategy": "no", "disable_tqdm": True}
    return TrainingArguments(str(folder), **{**defaults, **options})


class Gradients(TrainerCallback):
    """A callback that keeps the gradients of the first optimiser step."""

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.found = gradients_of(model)


def model_of(job, folder, gather=False):
    """Returns the model and the loss of a job; the loss is a part of the model if the job says so."""
    loss_inside = job["inside"]
    temperature = LearnedTemperature(0.3).double() if loss_inside else 0.3
    loss = build_loss(
        job["name"], temperature=temperature, normalize=True, gather=gather, reduction=job["reduction"]
    )
    return Embedder(bert(folder), loss if loss_inside else None), loss


def step(job, batches, folder, gather=False):
    """Trains one optimiser step on batches, and returns the gradients of the model and the logged loss."""

    class OwnBatches(Trainer):
        def get_train_dataloader(self):
            return DataLoader(batches, batch_size=None)

    args = arguments(
        folder / "out", max_steps=1, gradient_accumulation_steps=len(batches), max_grad_norm=0,
        logging_steps=1, average_tokens_across_devices=job["averaged"],
    )  # fmt: skip
    model, loss = model_of(job, folder, gather)
    compute_loss, recorder = None if job["inside"] else TrainerLoss(loss, args), Gradients()
    trainer = OwnBatches(model, args, train_dataset=[0], compute_loss_func=compute_loss, callbacks=[recorder])
    trainer.train()
    gradients = {name.removeprefix("module."): gradient for name, gradient in recorder.found.items()}
    return gradients, trainer.state.log_history[0]["loss"]


def work(rank, jobs, folder):
    """Returns the gradients and the logged loss of each job."""
    with launched(rank):
        return [
            step(
                job,
                [batch(job["name"], rows_of(rank, split)) for split in job["splits"]],
                folder,
                job["gather"],
            )
            for job in jobs
        ]
