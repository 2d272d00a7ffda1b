import json
import pickle
import re
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from security.hostile import Hostile
from tiny_models import KINDS, save, token_batch
from torch import nn

from mlcl.errors import UserError
from mlcl.models.pretrained import (
    PADDING_CHANGES,
    LoraConfig,
    PretrainedKeys,
    build_network,
    check_length,
    freeze_layers,
    hidden_size,
    load_pretrained,
    network_without_weights,
    token_states,
)

transformers = pytest.importorskip("transformers")


@pytest.fixture
def copy(models, tmp_path):
    return shutil.copytree(models["bert"], tmp_path / "copy")


def make(folder, **options):
    torch.manual_seed(0)
    return load_pretrained(folder, **options)


def trained(network):
    return {name: p for name, p in network.named_parameters() if p.requires_grad}


def states_sum(network, seed=0):
    """Returns a weighted sum of the token states of three texts, with dropout of this seed."""
    torch.manual_seed(seed)
    h = token_states(network, *token_batch([6, 2, 4], 6))
    return (h * torch.linspace(-9, 9, h.numel()).sin().reshape(h.shape)).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_the_file(models, no_network, kind):
    network = make(models[kind])
    file_weights = load_file(models[kind] / "model.safetensors")
    assert hidden_size(network) == 16
    assert not network.config.use_cache
    assert "past_key_values" not in network(*token_batch([3], 3))
    weights = network.state_dict()
    assert weights.keys() == {name for name in file_weights if not name.startswith("pooler")}
    assert all(torch.equal(weights[name], file_weights[name]) for name in weights)
    assert len(trained(network)) == len(weights)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options", [{}, {"freeze": 1}, {"freeze": True}, {"lora": {"r": 2}, "weights": "bf16"}]
)
def test_a_network_without_weights_has_the_names_shapes_and_frozen_layers_of_the_real_one(
    models, kind, options
):
    def parameters(network):
        return {name: (p.shape, p.dtype, p.requires_grad) for name, p in network.named_parameters()}

    keys = PretrainedKeys(model=str(models[kind]), gradient_checkpointing=True, **options)
    meta_network = network_without_weights(keys)
    assert all(p.is_meta for p in meta_network.parameters())
    assert parameters(meta_network) == parameters(build_network(keys))


def test_trained_weights_are_float32_whatever_the_file(models, tmp_path):
    save(transformers.BertModel.from_pretrained(models["bert"]).half(), tmp_path)
    assert {p.dtype for p in make(tmp_path).parameters()} == {torch.float32}


def dropouts(network):
    """Returns the probabilities of all active dropout, of modules and of attention weights."""
    modules = {m.p for m in network.modules() if isinstance(m, nn.Dropout)}
    attention = {float(m.attention_dropout) for m in network.modules() if hasattr(m, "attention_dropout")}
    return modules | attention


@pytest.mark.parametrize(("kind", "own"), [("bert", {0.1}), ("roberta", {0.1}), ("llama", {0.0})])
def test_dropout_takes_the_place_of_the_model_s_own(models, kind, own):
    assert dropouts(make(models[kind])) == own
    dropout_network = make(models[kind], dropout=0.35).train()
    assert dropouts(dropout_network) == {0.35}
    assert states_sum(dropout_network, seed=1) != states_sum(dropout_network, seed=2)
    plain_network = make(models[kind], dropout=0.0).train()
    assert states_sum(plain_network, seed=1) == states_sum(plain_network, seed=2)


def test_a_family_without_dropout(tmp_path):
    config = transformers.MambaConfig(
        vocab_size=20, hidden_size=8, state_size=4, num_hidden_layers=1, time_step_rank=2
    )
    save(transformers.MambaModel(config), tmp_path)
    with pytest.raises(UserError, match=r"encoder\.dropout.*no dropout.*mamba"):
        load_pretrained(tmp_path, dropout=0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["float32", "bf16"])
def test_adapters_alone_train_and_stay_float32(models, kind, weights):
    network = make(models[kind], lora=LoraConfig(r=2), weights=weights).train()
    frozen_weights = {
        name: p.detach().clone() for name, p in network.named_parameters() if not p.requires_grad
    }
    assert {p.dtype for p in frozen_weights.values()} == {
        torch.float32 if weights == "float32" else torch.bfloat16
    }
    assert all("lora_" in name and p.dtype == torch.float32 for name, p in trained(network).items())
    linear = [m for m in make(models[kind]).modules() if isinstance(m, nn.Linear)]
    assert len(trained(network)) == 2 * len(linear) > 20
    optimizer = torch.optim.SGD(trained(network).values(), lr=0.1)
    before = {name: p.detach().clone() for name, p in trained(network).items()}
    for _ in range(2):  # A has no gradient in the first step, since B is 0
        optimizer.zero_grad()
        states_sum(network).backward()
        optimizer.step()
    assert all(not torch.equal(p, before[name]) for name, p in trained(network).items())
    after = dict(network.named_parameters())
    assert all(torch.equal(after[name], p) and after[name].grad is None for name, p in frozen_weights.items())


def test_adapters_start_as_nothing_and_add_what_the_equation_says(models):
    plain_network = make(models["bert"]).eval()
    adapted_network = make(models["bert"], lora=LoraConfig(r=2, alpha=6.0, targets=("query",))).eval()
    assert torch.equal(states_sum(plain_network), states_sum(adapted_network))
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in trained(adapted_network)} == {"query"}
    layer = adapted_network.encoder.layer[0].attention.self.query
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    nn.init.normal_(b)
    x = torch.randn(3, 16)
    torch.testing.assert_close(layer(x), layer.base_layer(x) + x @ a.T @ b.T * 6.0 / 2)


def test_an_adapter_for_a_layer_that_is_not_there(models):
    with pytest.raises(UserError, match="no such linear layer") as excinfo:
        load_pretrained(models["bert"], lora=LoraConfig(targets=("query", "q_proj")))
    assert (excinfo.value.key, excinfo.value.found) == ("encoder.lora.targets", ["q_proj"])
    assert excinfo.value.allowed == ["dense", "key", "query", "value"]
    with pytest.raises(UserError, match=r"no such linear layer; found: none"):
        load_pretrained(models["bert"], lora=LoraConfig(targets=()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lora", [None, LoraConfig(r=2, dropout=0.3)], ids=["all weights", "adapters"])
def test_recomputed_layers_give_the_same_gradient(models, kind, lora):
    results = []
    for recompute in (False, True):
        network = make(models[kind], dropout=0.3, lora=lora, gradient_checkpointing=recompute).train()
        calls = []
        layer = next(m for name, m in network.named_modules() if name.endswith(("value", "v_proj")))
        layer.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        value = states_sum(network)
        value.backward()
        assert len(calls) == (2 if recompute else 1)
        results.append((value.detach(), {name: p.grad for name, p in trained(network).items()}))
    (value, gradients), (second_value, recomputed_gradients) = results
    assert torch.equal(value, second_value)
    assert any(gradient.abs().max() > 0.1 for gradient in gradients.values())
    torch.testing.assert_close(recomputed_gradients, gradients, rtol=1e-6, atol=1e-7)


def test_a_model_that_cannot_recompute_its_layers(models, monkeypatch):
    monkeypatch.setattr(transformers.BertModel, "supports_gradient_checkpointing", False)
    with pytest.raises(UserError, match=r"encoder\.gradient_checkpointing"):
        load_pretrained(models["bert"], gradient_checkpointing=True)


DECODERS = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "vocab_size": 20}


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("GPT2", {"n_positions": 12}),
        ("OPT", {"max_position_embeddings": 12, "word_embed_proj_dim": 16, "ffn_dim": 16}),
    ],
)
def test_learned_positions_of_decoders_end_too(tmp_path, kind, model):
    config = getattr(transformers, f"{kind}Config")(**DECODERS, **model)
    network = make(save(getattr(transformers, f"{kind}Model")(config), tmp_path))
    check_length(network, 12, "encoder.max_length")
    token_states(network, *token_batch([12], 12))
    with pytest.raises(UserError, match=r"encoder\.max_length.*found: 13; allowed: 12"):
        check_length(network, 13, "encoder.max_length")


def test_the_size_of_states_that_are_projected(tmp_path):
    sizes = {"max_position_embeddings": 12, "word_embed_proj_dim": 8, "ffn_dim": 16, "pad_token_id": 0}
    network = make(save(transformers.OPTModel(transformers.OPTConfig(**DECODERS, **sizes)), tmp_path))
    assert hidden_size(network) == 8
    assert token_states(network, *token_batch([12], 12)).shape == (1, 12, 8)


def test_damaged_and_foreign_weights(copy, no_network):
    file = copy / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="cannot load"):
        load_pretrained(copy)
    file.write_bytes(content)
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}  # the file is replaced below
    lost_weight = tensors.pop("encoder.layer.1.output.dense.weight")
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"weights are missing.*layer\.1\.output\.dense\.weight"):
        load_pretrained(copy)
    save_file({**tensors, "encoder.layer.1.output.dense.weight": lost_weight[:, :5].clone()}, file)
    with pytest.raises(UserError, match="cannot load"):
        load_pretrained(copy)


def test_neither_a_model_s_own_code_nor_pickled_weights_are_run(copy, tmp_path, no_network):
    marker = tmp_path / "ran"
    (copy / "modeling_own.py").write_text(f"open({str(marker)!r}, 'w')\n")
    config = json.loads((copy / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "modeling_own.Own", "AutoConfig": "modeling_own.OwnConfig"}
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "pytorch_model.bin").write_bytes(pickle.dumps(Hostile(marker)))
    assert type(make(copy)) is transformers.BertModel
    (copy / "config.json").write_text(json.dumps({**config, "model_type": "own"}))
    with pytest.raises(UserError, match=r"encoder\.model"):
        load_pretrained(copy)
    assert not marker.exists()


DAMAGED = "cannot load this model; found: ."
NO_TEXT = "neither a text encoder nor a decoder"
QUANTIZED = {"quant_method": "bitsandbytes", "load_in_4bit": True}
CONFIGURATIONS = [
    ({"hidden_size": "x"}, DAMAGED),
    ({"hidden_size": 0}, DAMAGED),
    ({"num_attention_heads": 3}, DAMAGED),
    ({"hidden_act": "no-such-function"}, DAMAGED),
    ({"dtype": "no-such-type"}, DAMAGED),
    ({"attn_implementation": "flash_attention_2"}, DAMAGED),
    ({"quantization_config": 3}, DAMAGED),
    ({"quantization_config": QUANTIZED}, "these weights are quantized"),
    ({"model_type": "no-such-kind"}, DAMAGED),
    ({"model_type": "t5"}, NO_TEXT),
    *(
        ({"model_type": family}, f"padding changes its outputs; found: {family}")
        for family in PADDING_CHANGES
    ),
]


@pytest.mark.parametrize(("change", "message"), CONFIGURATIONS, ids=[str(c) for c, _ in CONFIGURATIONS])
def test_a_configuration_that_does_not_make_a_model(copy, no_network, change, message):
    file = copy / "config.json"
    file.write_text(json.dumps(change if "model_type" in change else json.loads(file.read_text()) | change))
    with pytest.raises(UserError, match=rf"encoder\.model: {message}"):
        load_pretrained(copy)


def test_weights_under_the_names_of_older_files(models, copy, no_network, capfd):
    """BERT's own file has the prefix `bert.`, the names gamma and beta, and the head of its pre-training."""
    tensors = {
        "bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
        for name, t in load_file(copy / "model.safetensors").items()
    }
    save_file({**tensors, "cls.predictions.bias": torch.ones(3)}, copy / "model.safetensors")
    capfd.readouterr()
    weights, expected = make(copy).state_dict(), make(models["bert"]).state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert capfd.readouterr() == ("", "")  # the library must not write over the progress of a run


def test_a_language_model_in_several_files(models, tmp_path, no_network):
    """Llama's own weights come in several files."""
    model = transformers.AutoModelForCausalLM.from_pretrained(models["llama"])
    model.save_pretrained(tmp_path, max_shard_size="5KB")
    shutil.copy(models["llama"] / "tokenizer.json", tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    weights, expected = make(tmp_path).state_dict(), make(models["llama"]).state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    next(tmp_path.glob("*.safetensors")).unlink()
    with pytest.raises(UserError, match="cannot load this model"):
        load_pretrained(tmp_path)


def test_models_of_images_are_refused(tmp_path, no_network):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "image_size": 8, "patch_size": 4}
    config = transformers.ViTConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)
    with pytest.raises(UserError, match=r"neither a text encoder nor a decoder; found: vit"):
        load_pretrained(save(transformers.ViTModel(config), tmp_path))


@pytest.mark.parametrize(
    ("package", "options", "extra"),
    [("transformers", {}, "transformers"), ("peft", {"lora": LoraConfig()}, "lora")],
)
def test_a_package_that_is_not_installed(models, monkeypatch, package, options, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"pip install 'mlcl\[{extra}\]'"):
        load_pretrained(models["bert"], **options)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_layers_are_the_embeddings_and_the_first_ones(models, kind):
    def trained(freeze):
        network = make(models[kind])
        freeze_layers(network, freeze)
        return {name for name, parameter in network.named_parameters() if parameter.requires_grad}

    all_names, half_names = trained(False), trained(1)
    assert {name for name in all_names if re.search(r"layers?\.0\.", name)} <= trained(0)
    assert not any("embed" in name for name in trained(0))
    assert trained(True) == set()
    assert any("embed" in name for name in all_names)
    assert not any("embed" in name or re.search(r"layers?\.0\.", name) for name in half_names)
    assert {name for name in all_names if re.search(r"layers?\.1\.", name)} <= half_names
    assert {name for name in all_names if name.startswith("norm")} <= half_names
    with pytest.raises(UserError, match=r"encoder\.freeze: more layers than there are; found: 3; allowed: 2"):
        trained(3)


def test_layers_that_share_weights_are_frozen_all_or_not_at_all():
    sizes = {"vocab_size": 20, "embedding_size": 8, "hidden_size": 16, "intermediate_size": 16}
    network = transformers.AlbertModel(
        transformers.AlbertConfig(num_hidden_layers=2, num_attention_heads=2, **sizes)
    )
    with pytest.raises(UserError, match=r"encoder\.freeze: has no list of layers; found: 1; allowed: true"):
        freeze_layers(network, 1)
    freeze_layers(network, False)
    assert len(trained(network)) == len(list(network.parameters()))
    freeze_layers(network, True)
    assert trained(network) == {}


@pytest.mark.parametrize("kind", ["XLM", "Flaubert"])
def test_layers_whose_parts_are_in_several_lists_are_frozen_all_or_not_at_all(kind):
    config = getattr(transformers, f"{kind}Config")(vocab_size=20, emb_dim=16, n_layers=2, n_heads=2)
    network = getattr(transformers, f"{kind}Model")(config)
    with pytest.raises(UserError, match=r"encoder\.freeze: has no list of layers; found: 1; allowed: true"):
        freeze_layers(network, 1)
    freeze_layers(network, True)
    assert trained(network) == {}


def test_what_follows_the_layers_is_trained_though_it_is_declared_before_them():
    sizes = {**DECODERS, "num_hidden_layers": 2, "word_embed_proj_dim": 8, "ffn_dim": 16}

    def parts(freeze):
        network = transformers.OPTModel(transformers.OPTConfig(**sizes))
        freeze_layers(network, freeze)
        return {re.match(r"decoder\.(layers\.\d|\w+)", name)[1] for name in trained(network)}

    assert parts(1) == {"layers.1", "final_layer_norm", "project_out"}
    assert parts(2) == set()


def test_lists_within_the_layers_are_no_lists_of_layers():
    network = nn.Module()
    network.config = SimpleNamespace(num_hidden_layers=2)
    experts = (nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)]) for _ in range(2))
    network.layers = nn.ModuleList(nn.ModuleDict({"experts": layer_experts}) for layer_experts in experts)
    freeze_layers(network, 1)
    assert trained(network).keys() == {
        f"layers.1.experts.{i}.{name}" for i in "01" for name in ("weight", "bias")
    }
