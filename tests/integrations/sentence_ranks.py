"""Models and steps of tests/integrations/test_sentence_transformers.py, and each process's function."""

import torch
from datasets import Dataset
from integrations.ranks import gradients_of, launched, rows_of
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from tiny_models import WORDS, token_batch, word_tokenizer
from torch.utils.data import DataLoader
from transformers import TrainerCallback

from mlcl.integrations.sentence_transformers import LabelCollator, LabelLoss, label_batches
from mlcl.losses import LearnedTemperature, build_loss

MULTI_HOT = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0], [1, 0, 1], [1, 1, 1], [0, 0, 1]]
LENGTHS = ([3, 6, 4, 8, 5, 7, 8, 3], [8, 2, 5, 3, 7, 6, 4, 4])
LISTS = [["a"], ["a", "b"], ["b"], [], ["c", "a"], ["b", "c"], ["c"], ["a", "b", "c"]] * 6
DATA = Dataset.from_dict({"text": [WORDS[n % 16] for n in range(48)], "label": LISTS})


def bert(folder, dropout=0.0):
    """Returns a tiny BERT in float64 from a folder that `tiny_models.tiny_model` made."""
    options = {"attention_probs_dropout_prob": dropout, "hidden_dropout_prob": dropout}
    transformer = Transformer(str(folder), config_kwargs=options)
    return SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu").double()


def static():
    """Returns a model with one embedding per word."""
    torch.manual_seed(0)
    tokenizer = word_tokenizer("bert").backend_tokenizer
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu")


def label_loss(model, mini_batch_size=None, name="mulsupcon", gather=False):
    temperature = LearnedTemperature(0.3).double()
    return LabelLoss(
        model, build_loss(name, temperature=temperature, normalize=True, gather=gather), mini_batch_size
    )


def batch(rows=slice(None), columns=2, labels=True):
    """Returns a collated batch of some of eight samples, with columns of tokens and with label sets."""
    features = {"label": torch.tensor(MULTI_HOT)[rows]} if labels else {}
    for number in range(columns):
        ids, mask = token_batch(LENGTHS[number], 8, seed=number)
        features |= {f"text{number}_input_ids": ids[rows], f"text{number}_attention_mask": mask.long()[rows]}
    return features


class Gradients(TrainerCallback):
    """A callback that keeps the gradients of the first optimiser step."""

    def __init__(self, loss):
        self.loss = loss

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self.found = gradients_of(self.loss)


def arguments(folder, **options):
    return SentenceTransformerTrainingArguments(
        str(folder), use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, **options
    )


def step(loss, batches, folder):
    """Trains one optimiser step on batches, and returns the gradients of the model and the loss."""

    class Trainer(SentenceTransformerTrainer):
        def get_train_dataloader(self):
            return DataLoader(batches, batch_size=None)

    recorder = Gradients(loss)
    args = arguments(folder, max_steps=1, gradient_accumulation_steps=len(batches), max_grad_norm=0)
    Trainer(loss.model, args, train_dataset=DATA, loss=loss, callbacks=[recorder]).train()
    return {name.replace("model.module.", "model."): gradient for name, gradient in recorder.found.items()}


def batches_of_epochs(folder):
    """Returns the row numbers of this process's batches, in two epochs of the trainer's own loader."""
    model = static()
    args = arguments(folder, per_device_train_batch_size=8, batch_sampler=label_batches("pk", k=2), seed=5)
    collator = LabelCollator(model.preprocess, classes=["a", "b", "c"])
    trainer = SentenceTransformerTrainer(
        model, args, train_dataset=DATA, loss=label_loss(model), data_collator=collator
    )
    loader, epoch_batches = trainer.get_train_dataloader(), []
    for epoch in range(2):
        loader.set_epoch(epoch)
        epoch_batches.append(list(loader.batch_sampler))
    return epoch_batches


def work(rank, jobs, folder):
    """Returns the gradients of each job, and the batches of the trainer's own loader."""
    with launched(rank):
        answers = []
        for job in jobs:
            loss = label_loss(bert(folder), job["mini_batch_size"], job["name"], gather=True)
            kind = {"columns": job["columns"], "labels": job["name"] != "simclr"}
            batches = [batch(rows_of(rank, split), **kind) for split in job["splits"]]
            answers.append(step(loss, batches, folder / "out"))
        return answers, batches_of_epochs(folder / "out")
