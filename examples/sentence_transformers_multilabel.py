"""A multi-label contrastive loss in sentence-transformers, with label lists of different lengths.

    python examples/sentence_transformers_multilabel.py

The labels of a diagnosis are all classes above it in ICD-10-CM, from its chapter down. A batch has several
texts of each label that is drawn for it. The model is a vector for each word; it begins with random weights.
"""

import tempfile

import simple_icd_10_cm as icd
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers import SentenceTransformerTrainingArguments as TrainingArguments
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sklearn.metrics import f1_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import MultiLabelBinarizer
from tokenizers import Tokenizer, models, pre_tokenizers

from mlcl.integrations.sentence_transformers import LabelCollator, LabelLoss, label_batches
from mlcl.losses import build_loss

CODES = [code for code in icd.get_all_codes() if icd.is_leaf(code)][::40]
TEXTS, LABELS = list(map(icd.get_description, CODES)), list(map(icd.get_ancestors, CODES))
SETS = MultiLabelBinarizer().fit(LABELS)


def new_model() -> SentenceTransformer:
    """Returns a model with a random vector for each word."""
    words = {word for text in TEXTS for word in text.replace(",", " ").split()}
    numbers = {word: number for number, word in enumerate(["[UNK]", *sorted(words)])}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=64)], device="cpu")


def neighbour_f1(model: SentenceTransformer, train: Dataset, test: Dataset) -> float:
    """Returns the micro-F1 on the test texts, each of which gets the labels of the nearest training text."""
    x, x_test = (model.encode(part["text"][:], normalize_embeddings=True) for part in (train, test))
    y, y_test = (SETS.transform(part["label"][:]) for part in (train, test))
    nearest = KNeighborsClassifier(1).fit(x, y).kneighbors(x_test, return_distance=False)[:, 0]
    return float(f1_score(y_test, y[nearest], average="micro"))


def main() -> None:
    """Trains on 80% of the diagnoses, and prints the loss and the F1 of the others, before and after."""
    torch.manual_seed(0)
    train, test = Dataset.from_dict({"text": TEXTS, "label": LABELS}).train_test_split(0.2, seed=0).values()
    model = new_model()
    before = neighbour_f1(model, train, test)
    arguments = TrainingArguments(
        tempfile.mkdtemp(), per_device_train_batch_size=256, num_train_epochs=8, learning_rate=0.02,
        batch_sampler=label_batches("pk", k=4), use_cpu=True, logging_strategy="epoch", report_to=[],
    )  # fmt: skip
    loss = LabelLoss(model, build_loss("mulsupcon", temperature=0.1, normalize=True, gather=True))
    collator = LabelCollator(model.preprocess, classes=SETS.classes_)
    trainer = SentenceTransformerTrainer(model, arguments, train, loss=loss, data_collator=collator)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"loss: {losses[0]:.3f} in the first epoch, {losses[-1]:.3f} in the last")
    print(f"micro-F1 of neighbours: {before:.3f} before, {neighbour_f1(model, train, test):.3f} after")


if __name__ == "__main__":
    main()
