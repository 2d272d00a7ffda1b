import json
import socket

import pytest
import torch

from mlcl.errors import UserError
from mlcl.models.transformer import Transformer

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    path = tmp_path_factory.mktemp("bert")
    transformers.BertModel(config).save_pretrained(path)
    return path


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("touched the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def batch():
    ids = torch.randint(1, 40, (3, 6), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(6) < torch.tensor([[6], [2], [4]])
    return ids, mask


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_never_changes_an_output(folder, no_network, pooling):
    encoder = Transformer(folder, pooling=pooling).eval()
    ids, mask = batch()
    together = encoder(input_ids=ids, attention_mask=mask)
    assert together.shape == (3, 8)
    assert encoder.dim == 8
    alone = encoder(ids[1, None, :2], mask[1, None, :2])
    torch.testing.assert_close(alone[0], together[1])


def test_pooling(folder):
    ids, mask = batch()
    cls, mean = Transformer(folder, "cls").eval(), Transformer(folder, "mean").eval()
    states = cls.network(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    torch.testing.assert_close(cls(ids, mask), states[:, 0])
    torch.testing.assert_close(mean(ids, mask)[1], states[1, :2].mean(0))


def test_every_trained_parameter_sees_a_gradient(folder):
    encoder = Transformer(folder)
    encoder(*batch()).square().sum().backward()
    idle = [n for n, p in encoder.named_parameters() if p.requires_grad and p.grad is None]
    assert idle == []


def test_parameters_are_float32_whatever_the_file(folder, tmp_path):
    transformers.BertModel.from_pretrained(folder).half().save_pretrained(tmp_path)
    assert {p.dtype for p in Transformer(tmp_path).parameters()} == {torch.float32}


def test_pickled_weights_are_refused(folder, tmp_path, no_network):
    model = transformers.BertModel.from_pretrained(folder)
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"encoder.model.*safetensors"):
        Transformer(tmp_path)


def test_a_folder_without_a_model(tmp_path, no_network):
    with pytest.raises(UserError, match=r"encoder.model"):
        Transformer(tmp_path)


def test_a_model_of_unknown_kind(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-kind"}))
    with pytest.raises(UserError, match=r"encoder.model"):
        Transformer(tmp_path)


def test_a_name_that_is_no_model():
    with pytest.raises(UserError, match=r"encoder.model.*no/such/model"):
        Transformer("no/such/model")
