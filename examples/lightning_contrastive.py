"""A contrastive loss over four batches at once in Lightning, which need not fit into memory together.

    python examples/lightning_contrastive.py

Digits have several labels: even, prime, and drawn with a loop. Each step compares the rows of four batches,
and of all processes, through the gradient cache; a callback logs the loss's diagnostics.
"""

import lightning
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import f1_score
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from mlcl.integrations.lightning import GradCacheMixin, LossStatsLogger
from mlcl.losses import build_loss
from mlcl.samplers import LabelBatchSampler

EVEN, PRIME, LOOP = {0, 2, 4, 6, 8}, {2, 3, 5, 7}, {0, 6, 8, 9}
SETS = torch.tensor([[digit in digits for digits in (EVEN, PRIME, LOOP)] for digit in range(10)])


class Model(GradCacheMixin, lightning.LightningModule):
    """An encoder that is trained with `simdis` on batches of images (B, 64) and their label sets (B, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 16))
        self.loss = build_loss("simdis", temperature=0.2, normalize=True, gather=True)

    def training_step(self, batch: list[Tensor], _index: int) -> None:
        """Optimises after every fourth batch."""
        if batches := self.collect(batch, every=4):
            images, labels = [x for x, _ in batches], torch.cat([y for _, y in batches])
            self.optimizers().zero_grad()
            value = self.cached_backward(images, self.encoder, lambda z: self.loss(z, labels))
            self.optimizers().step()
            self.log("value", value, on_step=False, on_epoch=True, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=5e-3)

    def on_train_epoch_end(self) -> None:
        """Prints the mean loss of the epoch, and a diagnostic."""
        metrics = {name: value.item() for name, value in self.trainer.callback_metrics.items()}
        print(f"loss: {metrics['value']:.3f}; alignment of positives: {metrics['loss/alignment']:.3f}")


def neighbour_f1(model: Model, images: Tensor, sets: Tensor) -> float:
    """Returns the macro-F1 of the labels of the last images, by five neighbours among the first 1,000."""
    with torch.no_grad():
        rows = nn.functional.normalize(model.encoder(images), dim=1).numpy()
    neighbours = KNeighborsClassifier(5).fit(rows[:1000], sets[:1000])
    return float(f1_score(sets[1000:], neighbours.predict(rows[1000:]), average="macro"))


def main() -> None:
    """Trains on 1,000 digits, and prints the F1 of the others, before and after."""
    lightning.seed_everything(0)
    digits = load_digits()
    images, sets = torch.tensor(digits.data / 16, dtype=torch.float32), SETS[digits.target]
    sampler = LabelBatchSampler(sets[:1000], batch_size=64, order="balanced")
    loader = DataLoader(TensorDataset(images[:1000], sets[:1000]), batch_sampler=sampler)
    model = Model()
    before = neighbour_f1(model, images, sets)
    trainer = lightning.Trainer(
        max_epochs=15, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        use_distributed_sampler=False, callbacks=[LossStatsLogger(every=8)], enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(model, loader)
    print(f"macro-F1 of neighbours: {before:.3f} before, {neighbour_f1(model, images, sets):.3f} after")


if __name__ == "__main__":
    main()
