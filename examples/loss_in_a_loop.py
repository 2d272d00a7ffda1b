"""A contrastive loss in a plain PyTorch loop: embeddings of equal digits move close together.

    python examples/loss_in_a_loop.py

`build_loss` returns a `torch.nn.Module`; nothing else of mlcl is used here. Shapes: B rows of a batch, D
values of an embedding.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from mlcl.losses import build_loss

STEPS, BATCH_SIZE = 150, 128


def train(encoder: torch.nn.Module, images: torch.Tensor, digits: torch.Tensor) -> None:
    """Trains the encoder with `supcon` on the images (N, 64) and their digits (N,)."""
    loss = build_loss("supcon", temperature=0.1, normalize=True)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-2)
    values = []
    for _ in range(STEPS):
        batch_B = torch.randint(len(images), (BATCH_SIZE,))
        z_BD = encoder(images[batch_B])
        value = loss(z_BD, digits[batch_B])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    print(f"loss: {values[0]:.3f} at the first step, {values[-1]:.3f} at the last")


def accuracy(encoder: torch.nn.Module, images: torch.Tensor, digits: torch.Tensor) -> float:
    """Returns the accuracy on the last images, by the five nearest among the first 1,000 embeddings."""
    with torch.no_grad():
        embeddings = torch.nn.functional.normalize(encoder(images), dim=1)
    neighbours = KNeighborsClassifier(5).fit(embeddings[:1000], digits[:1000])
    return float(neighbours.score(embeddings[1000:], digits[1000:]))


def main() -> None:
    """Trains on 1,000 digits and classifies the others by their neighbours, before and after."""
    torch.manual_seed(0)
    data = load_digits()
    images, digits = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
    encoder = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 16))
    before = accuracy(encoder, images, digits)
    train(encoder, images[:1000], digits[:1000])
    after = accuracy(encoder, images, digits)
    print(f"accuracy of neighbours: {before:.3f} before, {after:.3f} after")


if __name__ == "__main__":
    main()
