import pytest
import torch
from tiny_models import token_batch

from mlcl.errors import UserError
from mlcl.models import label_layers
from mlcl.models.encoders.plm_icd import PlmIcd
from mlcl.models.pretrained import load_pretrained

KINDS = ("bert", "roberta")
DIM, LABELS = 16, 5


def make(folder, chunk_length=4, labels=LABELS, pooling="max", **options):
    torch.manual_seed(0)
    encoder = PlmIcd(load_pretrained(folder, **options), labels, chunk_length=chunk_length, pooling=pooling)
    for linear in (encoder.attention.key, encoder.attention.query, encoder.attention.output):
        torch.nn.init.normal_(linear.weight, std=0.5)  # attention far from the uniform one at the start
    return encoder


def by_hand(encoder, ids, mask):
    """Returns the output for each text, with its chunks computed one at a time and without padding."""
    layer, rows = encoder.attention, []
    for text, tokens in zip(ids, mask.sum(1).tolist(), strict=True):
        states = [
            encoder.network(
                input_ids=chunk.unsqueeze(0), attention_mask=torch.ones(1, len(chunk), dtype=torch.long)
            ).last_hidden_state[0]
            for chunk in text[:tokens].split(encoder.chunk_length)
        ]
        h = torch.cat(states)
        z = torch.tanh(h @ layer.key.weight.T)
        vectors = torch.stack([torch.softmax(z @ u, 0) @ h for u in layer.query.weight])
        logits = torch.stack([w @ d for w, d in zip(layer.output.weight, vectors, strict=True)])
        pooled = vectors.max(0).values if layer.pooling == "max" else vectors.mean(0)
        rows.append(torch.cat([pooled, logits + layer.output.bias]))
    return torch.stack(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["max", "mean"])
@pytest.mark.parametrize("chunk_length", [4, 5, 30])
def test_equals_chunk_after_chunk_without_padding(models, kind, pooling, chunk_length):
    encoder = make(models[kind], chunk_length, pooling=pooling).double().eval()
    ids, mask = token_batch([13, 2, 8], 13)
    output = encoder(input_ids=ids, attention_mask=mask)
    assert (encoder.dim, encoder.label_logits) == (DIM, LABELS)
    assert output.shape == (3, DIM + LABELS)
    torch.testing.assert_close(output, by_hand(encoder, ids, mask), rtol=1e-9, atol=1e-11)


def test_the_label_layer_reads_the_labels_vectors(models, monkeypatch):
    encoder = make(models["bert"]).double().eval()
    ids, mask = token_batch([13, 2, 8], 13)
    logits_BL = encoder(input_ids=ids, attention_mask=mask)[:, DIM:]
    layer = encoder.label_layer
    for label_count in (LABELS, 2):
        monkeypatch.setattr(label_layers, "LABELS_AT_ONCE", label_count)
        vectors_BLD = encoder.label_vectors(input_ids=ids, attention_mask=mask)
        assert vectors_BLD.shape == (3, LABELS, DIM)
        torch.testing.assert_close((vectors_BLD * layer.weight).sum(2) + layer.bias, logits_BL)


def test_more_tokens_than_the_network_has_positions_for(models):
    encoder = make(models["roberta"], chunk_length=32).eval()
    ids, mask = token_batch([100, 3], 100)
    assert encoder(ids, mask).isfinite().all()
    with pytest.raises(UserError, match=r"encoder\.chunk_length.*found: 33; allowed: 32"):
        make(models["roberta"], chunk_length=33)


def test_chunks_of_padding_are_not_computed(models):
    encoder = make(models["bert"]).eval()
    shapes = []
    encoder.network.embeddings.register_forward_hook(
        lambda module, inputs, output: shapes.append(output.shape)
    )
    batches = token_batch([13, 2, 8], 13), token_batch([3, 2], 3)
    for batch in batches:
        encoder(*batch)
    assert shapes == [(1, 13 + 2 + 8, DIM), (1, 3 + 2, DIM)]
    shapes.clear()
    encoder.network.set_attn_implementation("sdpa")  # pads chunks, as on a GPU
    for batch in batches:
        encoder(*batch)
    assert shapes == [(4 + 1 + 2, 4, DIM), (2, 3, DIM)]
