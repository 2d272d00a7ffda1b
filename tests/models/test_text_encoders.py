"""Text encoders in a training: micro-batches, dropout in both of their passes, and a loss that falls."""

import pytest
import torch
import torch.nn.functional as F
from tiny_models import KINDS, token_batch
from torch import nn

from mlcl.labels import LabelRows
from mlcl.losses import build_loss
from mlcl.models import label_layers
from mlcl.models.encoders.ldgn import Ldgn
from mlcl.models.encoders.plm_icd import PlmIcd
from mlcl.models.encoders.transformer import TextTransformer
from mlcl.models.label_layers import label_graph
from mlcl.models.pretrained import LoraConfig, load_pretrained
from mlcl.training.batches import Batch
from mlcl.training.checkpoint import seed_all
from mlcl.training.context import ONE_PROCESS
from mlcl.training.grad_cache import Passes
from mlcl.training.objective import ContrastiveModel, ObjectiveValue

LENGTHS = [9, 4, 6, 2, 7, 3]
ROWS = LabelRows.from_lists([[0], [0, 1], [2], [1, 2], [3, 4], [0, 3]] * 2, 5)
NETWORKS = [("transformer", kind) for kind in KINDS] + [("plm_icd", "bert"), ("plm_icd", "roberta")]
OPTIONS = {
    "all weights": {},
    "recomputed": {"gradient_checkpointing": True},
    "adapters": {"lora": LoraConfig(r=2, dropout=0.0)},
}
every_encoder = pytest.mark.parametrize(
    ("encoder", "kind", "options"),
    [(*network, options) for network in NETWORKS for options in OPTIONS] + [("ldgn", "", "all weights")],
)


def make(folders, encoder, kind="", dropout=0.0, **options):
    """An encoder in training, far from the flat weights of its start."""
    torch.manual_seed(0)
    if encoder == "ldgn":
        return Ldgn(30, label_graph(ROWS), embedding_dim=5, width=3, dropout=dropout).train()
    network = load_pretrained(folders[kind], dropout=dropout, **options)
    made = PlmIcd(network, 5, chunk_length=4) if encoder == "plm_icd" else TextTransformer(network, "mean")
    for name, parameter in made.named_parameters():
        if "lora_B" in name or name.startswith(("attention.key", "attention.query")):
            nn.init.normal_(parameter, std=0.4)
    return made.train()


class Both(nn.Module):
    """A contrastive loss of the embedding, and the labels' cross-entropy where the encoder gives logits."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.loss = build_loss("simdis", temperature=0.3, normalize=True)

    def forward(self, z_RD, labels, sample_ids_R):
        total = self.loss(z_RD[:, : self.dim], labels["tags"], sample_ids_R)
        if z_RD.shape[1] > self.dim:
            dense = labels["tags"].dense(z_RD.dtype)
            total = total + F.binary_cross_entropy_with_logits(z_RD[:, self.dim :], dense)
        return ObjectiveValue(total, {"total": total}, z_RD)


def step(encoder, size):
    """The objective of six texts in two views, in micro-batches of `size` samples; gradients are added."""
    ids, mask = token_batch(LENGTHS * 2, max(LENGTHS))
    batch = Batch({"input_ids": ids, "attention_mask": mask}, {"tags": ROWS}, torch.arange(6).repeat(2))
    model = ContrastiveModel(encoder, Both(encoder.dim))
    return Passes(model, model, ONE_PROCESS, "float32", 2, len(LENGTHS))(batch, size).total.detach()


def gradients(encoder, size):
    encoder.zero_grad()
    value = step(encoder, size)
    return value, {name: p.grad.clone() for name, p in encoder.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("at_once", [512, 2], ids=["one block", "blocks of labels"])
@every_encoder
def test_micro_batches_give_the_whole_batch_s_gradient(folders, monkeypatch, encoder, kind, options, at_once):
    monkeypatch.setattr(label_layers, "LABELS_AT_ONCE", at_once)
    made = make(folders, encoder, kind, **OPTIONS[options]).double()
    value, expected = gradients(made, 6)
    found_value, found = gradients(made, 2)
    torch.testing.assert_close(found_value, value, rtol=1e-12, atol=0)
    assert max(gradient.abs().max() for gradient in expected.values()) > 1e-3
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-12, msg=name)


@every_encoder
def test_dropout_of_the_second_pass_repeats_the_first(folders, encoder, kind, options):
    made, seen = make(folders, encoder, kind, 0.4, **OPTIONS[options]), {False: [], True: []}
    made.register_forward_hook(lambda _module, _inputs, z: seen[torch.is_grad_enabled()].append(z.detach()))
    seed_all(3)
    step(made, 2)
    first, second = torch.cat(seen[False]), torch.cat(seen[True])
    assert torch.equal(first, second)
    assert not torch.equal(first[:6], first[6:])  # the two views of a text


@every_encoder
def test_a_few_steps_reduce_the_loss(folders, encoder, kind, options):
    made = make(folders, encoder, kind, **OPTIONS[options])
    optimizer, curve = torch.optim.Adam([p for p in made.parameters() if p.requires_grad], 0.02), []
    for _ in range(12):
        optimizer.zero_grad()
        curve.append(float(step(made, len(LENGTHS))))
        optimizer.step()
    assert curve[-1] < 0.97 * curve[0]
