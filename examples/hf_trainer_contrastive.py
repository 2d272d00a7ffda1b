"""A hierarchical contrastive loss in the Hugging Face Trainer: a small BERT with random initial weights.

    python examples/hf_trainer_contrastive.py

A diagnosis has a path: an area (6 classes) and, within it, a section (24). `himulcon` compares a diagnosis
with the others of its area and of its section.
"""

import tempfile
from pathlib import Path

import pandas as pd
import torch
from sklearn.neighbors import KNeighborsClassifier
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, Trainer, TrainingArguments

from mlcl.integrations.transformers import Embedder, LabelCollator, TrainerLoss
from mlcl.losses import build_loss

TABLE = pd.read_csv(Path(__file__).with_name("diagnoses.csv")).sample(frac=1, random_state=0)
LEVELS = [sorted(set(TABLE[level])) for level in ("area", "section")]
SIZES = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 128}


def word_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Returns a tokenizer of the words of the texts."""
    words = sorted({word for text in texts for word in text.replace(",", " ").split()})
    numbers = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


def accuracy(trainer: Trainer, train: list[dict], test: list[dict]) -> float:
    """Returns the accuracy of the sections of the test rows, by five neighbours among the training rows."""
    x, x_test = (trainer.predict(part).predictions for part in (train, test))
    y, y_test = ([row["labels"][1] for row in part] for part in (train, test))
    return float(KNeighborsClassifier(5, metric="cosine").fit(x, y).score(x_test, y_test))


def main() -> None:
    """Trains on 1,000 diagnoses, and prints the loss and the accuracy of the other 200, before and after."""
    torch.manual_seed(0)
    texts, paths = TABLE["diagnosis"].to_list(), TABLE[["area", "section"]].to_numpy().tolist()
    tokenizer = word_tokenizer(texts)
    tokens = tokenizer(texts)["input_ids"]
    rows = [{"input_ids": ids, "labels": path} for ids, path in zip(tokens, paths, strict=True)]
    train, test = rows[:1000], rows[1000:]
    arguments = TrainingArguments(
        tempfile.mkdtemp(), num_train_epochs=8, per_device_train_batch_size=128, learning_rate=3e-3,
        logging_strategy="epoch", save_strategy="no", use_cpu=True, report_to=[],
    )  # fmt: skip
    encoder = BertModel(BertConfig(vocab_size=len(tokenizer), **SIZES), add_pooling_layer=False)
    loss = build_loss("himulcon", temperature=0.1, normalize=True, gather=True)
    trainer = Trainer(
        Embedder(encoder), arguments, data_collator=LabelCollator(tokenizer, levels=LEVELS),
        train_dataset=train, compute_loss_func=TrainerLoss(loss, arguments),
    )  # fmt: skip
    before = accuracy(trainer, train, test)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"loss: {losses[0]:.3f} in the first epoch, {losses[-1]:.3f} in the last")
    print(f"accuracy of neighbours: {before:.3f} before, {accuracy(trainer, train, test):.3f} after")


if __name__ == "__main__":
    main()
