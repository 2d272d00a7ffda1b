"""Several heads in a plain PyTorch loop: one loss for each level of a hierarchy, as in MLCL.

    python examples/several_heads.py

A diagnosis has an area (6 classes) and, within it, a section (24). Each level has its own projection head and
its own temperature; the higher level gets the higher temperature. A classifier is trained beside them.
"""

from pathlib import Path

import pandas as pd
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from torch.nn.functional import cross_entropy

from mlcl.losses import build_loss

DIAGNOSES = Path(__file__).with_name("diagnoses.csv")
EPOCHS, BATCH_SIZE, WIDTH = 8, 128, 128
TEMPERATURES = {"section": 0.1, "area": 0.5}
HEAD_WEIGHT = 0.3


def main() -> None:
    """Trains on 1,000 diagnoses and prints the accuracy on the other 200."""
    torch.manual_seed(0)
    table = pd.read_csv(DIAGNOSES).sample(frac=1, random_state=0)
    counts = TfidfVectorizer().fit(table["diagnosis"][:1000]).transform(table["diagnosis"])
    texts = torch.tensor(counts.toarray(), dtype=torch.float32)
    labels = {level: torch.tensor(table[level].factorize()[0]) for level in TEMPERATURES}

    encoder = torch.nn.Sequential(torch.nn.Linear(texts.shape[1], WIDTH), torch.nn.GELU())
    heads = torch.nn.ModuleDict({level: torch.nn.Linear(WIDTH, 32) for level in TEMPERATURES})
    classifier = torch.nn.Linear(WIDTH, 24)
    losses = {level: build_loss("supcon", temperature=TEMPERATURES[level], normalize=True) for level in heads}
    model = torch.nn.ModuleList([encoder, heads, classifier])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    for epoch in range(EPOCHS):
        for batch in torch.randperm(1000).split(BATCH_SIZE):
            features = encoder(texts[batch])
            values = {level: losses[level](heads[level](features), labels[level][batch]) for level in heads}
            values["classifier"] = cross_entropy(classifier(features), labels["section"][batch])
            total = values["classifier"] + HEAD_WEIGHT * (values["section"] + values["area"])
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}:", {name: round(value.item(), 3) for name, value in values.items()})

    with torch.no_grad():
        predictions = classifier(encoder(texts[1000:])).argmax(1)
    print(f"accuracy of the sections: {(predictions == labels['section'][1000:]).float().mean():.3f}")


if __name__ == "__main__":
    main()
