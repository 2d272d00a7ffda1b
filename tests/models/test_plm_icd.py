import pytest
import torch
from models.encoder_checks import LABELS, gradients, losses, outputs
from tiny_models import tiny_model, token_batch

from mlcl.errors import UserError
from mlcl.models import label_layers
from mlcl.models.encoders.plm_icd import PlmIcd
from mlcl.models.pretrained import load_pretrained
from mlcl.models.pretrained_section import LoraConfig

KINDS = ("bert", "roberta")
DIM = 16


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {kind: tiny_model(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def make(folder, chunk_length=4, labels=LABELS, pooling="max", **options):
    torch.manual_seed(0)
    encoder = PlmIcd(load_pretrained(folder, **options), labels, chunk_length=chunk_length, pooling=pooling)
    for linear in (encoder.attention.key, encoder.attention.query, encoder.attention.output):
        torch.nn.init.normal_(linear.weight, std=0.5)  # far from the flat weights of the start
    return encoder


def by_hand(encoder, ids, mask):
    """Text by text: its chunks one at a time, without padding, and then what the labels make of them."""
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
def test_equals_chunk_after_chunk_without_padding(folders, kind, pooling, chunk_length):
    encoder = make(folders[kind], chunk_length, pooling=pooling).double().eval()
    ids, mask = token_batch([13, 2, 8], 13)
    found = encoder(input_ids=ids, attention_mask=mask)
    assert (encoder.dim, encoder.label_logits) == (DIM, LABELS)
    assert found.shape == (3, DIM + LABELS)
    torch.testing.assert_close(found, by_hand(encoder, ids, mask), rtol=1e-9, atol=1e-11)


def test_more_tokens_than_the_network_has_positions_for(folders):
    encoder = make(folders["roberta"], chunk_length=32).eval()
    ids, mask = token_batch([100, 3], 100)
    assert encoder(ids, mask).isfinite().all()
    with pytest.raises(UserError, match=r"encoder\.chunk_length.*found: 33; allowed: 32"):
        make(folders["roberta"], chunk_length=33)


def test_chunks_of_padding_are_not_computed(folders):
    encoder = make(folders["bert"]).eval()
    seen = []
    encoder.network.embeddings.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    encoder(*token_batch([13, 2, 8], 13))
    encoder(*token_batch([3, 2], 3))
    assert seen == [(4 + 1 + 2, 4, DIM), (2, 3, DIM)]


def test_a_later_chunk_begins_at_the_first_position_and_sees_no_other(folders):
    encoder = make(folders["bert"], labels=1).eval()
    ids, mask = token_batch([4], 4)
    once = encoder(ids, mask)
    torch.testing.assert_close(encoder(ids.repeat(1, 3), mask.repeat(1, 3)), once)


@pytest.mark.parametrize("part", [slice(None, DIM), slice(DIM, None)], ids=["embedding", "logits"])
def test_every_trained_parameter_has_a_gradient_whichever_part_is_used(folders, part):
    encoder = make(folders["roberta"])
    encoder(*token_batch([9, 3], 9))[:, part].square().sum().backward()
    assert [n for n, p in encoder.named_parameters() if p.requires_grad and p.grad is None] == []


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dropout": 0.0, "gradient_checkpointing": True},
        {"lora": LoraConfig(r=4), "weights": "bf16", "gradient_checkpointing": True},
    ],
    ids=["all weights", "recomputed", "adapters"],
)
def test_a_few_steps_reduce_the_loss(folders, options):
    encoder = make(folders["roberta"], **options).train()
    curve = losses(encoder, steps=12, lr=0.02)
    assert sum(curve[-3:]) < 0.9 * sum(curve[:3])
    assert all(p.dtype == torch.float32 for p in encoder.parameters() if p.requires_grad)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at_once", [512, 2], ids=["one block", "blocks of labels"])
@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "recomputed"])
def test_micro_batches_give_the_whole_batch_s_gradient(folders, monkeypatch, kind, at_once, checkpointing):
    monkeypatch.setattr(label_layers, "LABELS_AT_ONCE", at_once)
    encoder = make(folders[kind], dropout=0.0, gradient_checkpointing=checkpointing).double().train()
    value, expected = gradients(encoder, 6)
    found_value, found = gradients(encoder, 2)
    torch.testing.assert_close(found_value, value, rtol=1e-12, atol=0)
    assert expected["attention.query.weight"].abs().max() > 1e-3
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "recomputed"])
def test_dropout_of_the_second_pass_repeats_the_first(folders, checkpointing):
    encoder = make(folders["bert"], dropout=0.4, gradient_checkpointing=checkpointing).train()
    first, second = outputs(encoder, 2)
    assert torch.equal(first, second)
    assert not torch.equal(first[:6], first[6:])  # the two views of a text
