import pytest
import torch
from tiny_models import KINDS, token_batch
from torch import nn

from mlcl.errors import UserError
from mlcl.models.encoders.transformer import TextTransformer
from mlcl.models.pretrained import LoraConfig, load_pretrained

POOLINGS = ("cls", "mean", "last")


def make(folder, pooling="mean", **options):
    torch.manual_seed(0)
    return TextTransformer(load_pretrained(folder, **options), pooling)


@pytest.mark.parametrize("kind", ["roberta", "llama"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_may_stand_on_the_left_where_positions_allow_it(models, kind, pooling):
    encoder = make(models[kind], pooling).train()
    encoder.network.eval()
    ids, mask = token_batch([6, 2, 4], 6)
    right = encoder(ids, mask)
    left = encoder(
        *(torch.stack([row.roll(6 - n) for row, n in zip(x, (6, 2, 4), strict=True)]) for x in (ids, mask))
    )
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
    left.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_pooling(models, kind):
    encoder = make(models[kind]).eval()
    ids, mask = token_batch([6, 2, 4], 6)
    states = encoder.network(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    expected = {"cls": states[:, 0], "last": torch.stack([states[0, 5], states[1, 1], states[2, 3]])}
    expected["mean"] = torch.stack([row[:n].mean(0) for row, n in zip(states, (6, 2, 4), strict=True)])
    for pooling in POOLINGS:
        torch.testing.assert_close(TextTransformer(encoder.network, pooling)(ids, mask), expected[pooling])


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_the_embedding_is_float32(models, precision):
    encoder = make(models["llama"], lora=LoraConfig(r=2), weights=precision).eval()
    ids, mask = token_batch([6, 2], 6)
    embedding = encoder(ids, mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast_embedding = encoder(ids, mask)
    assert embedding.dtype == autocast_embedding.dtype == torch.float32
    torch.testing.assert_close(autocast_embedding, embedding, rtol=0.1, atol=0.1)


def test_more_tokens_than_the_network_has_positions_for(models):
    for kind in ("bert", "roberta"):
        network = load_pretrained(models[kind])
        TextTransformer(network, max_length=32)(*token_batch([32], 32))
        with pytest.raises(UserError, match="more tokens") as excinfo:
            TextTransformer(network, max_length=33)
        assert (excinfo.value.key, excinfo.value.allowed) == ("encoder.max_length", 32)
    TextTransformer(load_pretrained(models["llama"]), max_length=10_000)  # rotary positions have no limit


def test_a_network_of_one_s_own_will_do():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(20, 3)
            self.config = type("Config", (), {"hidden_size": 3})

        def forward(self, input_ids, attention_mask):
            return type("Output", (), {"last_hidden_state": self.embedding(input_ids)})

    network = Network()
    ids, mask = token_batch([2, 1], 2)
    torch.testing.assert_close(TextTransformer(network, "last")(ids, mask)[1], network.embedding(ids[1, 0]))
