"""A contrastive loss in a plain PyTorch loop: similar digits come to lie near each other.

    python examples/loss_in_a_loop.py

`build_loss` returns a `torch.nn.Module`; mlcl is used for nothing else here. Shapes: B rows of a batch, D
values of an embedding.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from mlcl.losses import build_loss

STEPS, BATCH_SIZE = 150, 128


def train(images: torch.Tensor, digits: torch.Tensor) -> torch.nn.Module:
    """Returns an encoder that `supcon` has trained on the images (N, 64) and their digits (N,)."""
    encoder = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 16))
    loss = build_loss("supcon", temperature=0.1, normalize=True)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-2)
    for _ in range(STEPS):
        batch_B = torch.randint(len(images), (BATCH_SIZE,))
        z_BD = encoder(images[batch_B])
        value = loss(z_BD, digits[batch_B])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    print(f"loss of the last batch: {value.item():.3f}")
    return encoder


def main() -> None:
    """Trains on 1,000 digits and classifies the others by the five nearest embeddings."""
    torch.manual_seed(0)
    digits = load_digits()
    images, classes = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    encoder = train(images[:1000], classes[:1000])
    with torch.no_grad():
        embeddings = torch.nn.functional.normalize(encoder(images), dim=1).numpy()
    neighbours = KNeighborsClassifier(5).fit(embeddings[:1000], digits.target[:1000])
    print(f"accuracy of five neighbours: {neighbours.score(embeddings[1000:], digits.target[1000:]):.3f}")


if __name__ == "__main__":
    main()
