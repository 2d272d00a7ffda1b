import copy

import pytest
import torch
from tiny_models import SIZES, save, token_batch

from mlcl.models import unpadded
from mlcl.models.encoders.transformer import TextTransformer
from mlcl.models.pretrained import LoraConfig, load_pretrained, token_states

transformers = pytest.importorskip("transformers")

recent = pytest.mark.skipif(
    int(transformers.__version__.split(".")[0]) < 5, reason="transformers 4 computes texts with padding"
)
LENGTHS = [11, 2, 7, 1, 3]
TOKENS, MASK = token_batch(LENGTHS, 12)
FAMILIES = {
    "bert": transformers.BertConfig,
    "distilbert": transformers.DistilBertConfig,
    "electra": transformers.ElectraConfig,
    "roberta": transformers.RobertaConfig,
    "xlm-roberta": transformers.XLMRobertaConfig,
}


@pytest.fixture
def family(tmp_path):
    """Returns a function that makes a random network of a family and loads it as an encoder does."""

    def make(kind, *, dtype=torch.float64, **options):
        sizes = {"vocab_size": 24, "max_position_embeddings": 16, **SIZES}
        if kind == "distilbert":
            sizes = {"vocab_size": 24, "max_position_embeddings": 16, "dim": 16, "n_layers": 2, "n_heads": 2}
        padding = 1 if "roberta" in kind else 0
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(FAMILIES[kind](**sizes, pad_token_id=padding))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        save(model, tmp_path / kind)
        return load_pretrained(tmp_path / kind, **options).to(dtype)

    return make


def padded(network):
    """Returns a copy of the network that computes with padding."""
    padded_network = copy.deepcopy(network)
    padded_network.set_attn_implementation("sdpa")
    return padded_network


def shapes(network):
    input_shapes = []
    network.embeddings.register_forward_hook(
        lambda module, inputs, output: input_shapes.append(output.shape[:2])
    )
    return input_shapes


def test_the_families_are_those_that_are_tested():
    assert set(FAMILIES) == set(unpadded.FAMILIES)


@recent
@pytest.mark.parametrize("kind", FAMILIES)
def test_states_and_gradients_are_those_of_the_padded_batch(family, kind):
    network = family(kind).eval()
    padded_network, input_shapes = padded(network), shapes(network)
    actual, expected = (token_states(module, TOKENS, MASK) for module in (network, padded_network))
    assert input_shapes == [(1, sum(LENGTHS))]
    assert torch.equal(actual[~MASK], torch.zeros_like(actual[~MASK]))
    torch.testing.assert_close(actual[MASK], expected[MASK], rtol=1e-12, atol=1e-12)
    assert actual[MASK].std() > 0.1
    for states in (actual, expected):
        (states * MASK[..., None]).pow(3).sum().backward()
    gradients = [
        [p.grad for p in module.parameters() if p.grad is not None] for module in (network, padded_network)
    ]
    assert len(gradients[0]) > 20
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)


@recent
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_padding_token_within_a_text_is_computed_as_in_the_padded_batch(family, kind):
    network = family(kind).eval()
    padded_network, input_shapes, ids = padded(network), shapes(network), TOKENS.clone()
    ids[0, 3] = ids[2, 0] = network.config.pad_token_id
    actual, expected = (token_states(module, ids, MASK) for module in (network, padded_network))
    assert input_shapes == [(1, sum(LENGTHS))]
    torch.testing.assert_close(actual[MASK], expected[MASK], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_embeddings_do_not_depend_on_the_other_texts(family, pooling):
    network = family("bert").eval()
    encoder, padded_encoder = TextTransformer(network, pooling), TextTransformer(padded(network), pooling)
    rows = [padded_encoder(TOKENS[i : i + 1, :n], MASK[i : i + 1, :n]) for i, n in enumerate(LENGTHS)]
    torch.testing.assert_close(encoder(TOKENS, MASK), torch.cat(rows), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("ids", "mask"),
    [
        (TOKENS[:1, :11], MASK[:1, :11]),
        (TOKENS.flip(1), MASK.flip(1)),
        (TOKENS, MASK & (torch.arange(5)[:, None] > 0)),
    ],
    ids=["no padding", "padding on the left", "a text without tokens"],
)
def test_other_batches_are_padded(family, ids, mask):
    network = family("bert").eval()
    padded_network, input_shapes = padded(network), shapes(network)
    actual, expected = (token_states(module, ids, mask) for module in (network, padded_network))
    assert input_shapes == [ids.shape]
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_another_device_than_a_processor_is_padded(family):
    network = family("bert").eval().to("meta")
    assert unpadded.unpadded_states(network, TOKENS.to("meta"), MASK.to("meta")) is None


def test_decoders_are_padded(models):
    network = load_pretrained(models["llama"])
    assert unpadded.unpadded_states(network, TOKENS, MASK) is None


@recent
@pytest.mark.parametrize(
    "options", [{"lora": LoraConfig(r=2)}, {"gradient_checkpointing": True}, {"dropout": 0.3}]
)
def test_adapters_checkpoints_and_dropout_go_with_it(family, options):
    network = family("bert", **options)
    network.train(options.get("dropout") is not None)
    input_shapes = shapes(network)
    h = token_states(network, TOKENS, MASK)
    h.square().sum().backward()
    assert input_shapes == [(1, sum(LENGTHS))]
    trainable = [p for p in network.parameters() if p.requires_grad]
    assert all(torch.isfinite(p.grad).all() for p in trainable if p.grad is not None)
    assert sum(p.grad is not None for p in trainable) > 10
    if "dropout" not in options:
        torch.testing.assert_close(h[MASK], token_states(padded(network), TOKENS, MASK)[MASK])


def test_reduced_precision_and_compilation_go_with_it(family):
    network = family("bert", dtype=torch.float32).eval()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        low_states = token_states(network, TOKENS, MASK)
    exact_states = token_states(network, TOKENS, MASK)
    torch.testing.assert_close(low_states[MASK], exact_states[MASK], rtol=0.1, atol=0.1)
