import builtins
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import save_file

from mlcl.errors import UserError
from mlcl.models.encoders.cnn_image import CnnImage
from mlcl.models.encoders.resnet import ResNet

torchvision_is_there = pytest.mark.skipif(find_spec("torchvision") is None, reason="needs mlcl[images]")


@pytest.mark.parametrize(("blocks", "dim"), [(1, 4), (3, 16), (5, 64)])
def test_cnn_image_takes_every_allowed_size(blocks, dim):
    encoder = CnnImage(width=4, blocks=blocks)
    assert encoder.dim == dim
    assert encoder(pixels=torch.rand(2, 3, 8, 8)).shape == (2, dim)
    assert encoder(pixels=torch.rand(2, 3, 21, 33)).shape == (2, dim)


@torchvision_is_there
@pytest.mark.parametrize(("stem", "side"), [("cifar", 8), ("imagenet", 2)])
def test_resnet_stems(stem, side):
    encoder = ResNet("resnet18", stem=stem).eval()
    shapes = []
    encoder.network.layer1.register_forward_hook(lambda *args: shapes.append(args[2].shape))
    assert encoder(pixels=torch.rand(1, 3, 8, 8)).shape == (1, encoder.dim)
    assert shapes[0][-1] == side


@torchvision_is_there
def test_resnet_weights_come_from_safetensors_also_below_the_home(tmp_path, monkeypatch):
    from torchvision.models import resnet18

    monkeypatch.setenv("HOME", str(tmp_path))
    expected = resnet18(weights=None).state_dict()
    save_file(expected, tmp_path / "w.safetensors")
    for place in (tmp_path / "w.safetensors", "~/w.safetensors"):
        state_dict = ResNet("resnet18", stem="imagenet", weights=place).network.state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in state_dict.items())


@torchvision_is_there
def test_resnet_refuses_weights_that_do_not_fit(tmp_path):
    from torchvision.models import resnet18

    file = tmp_path / "w.safetensors"
    state = resnet18(weights=None).state_dict()
    save_file(state, file)
    with pytest.raises(UserError, match=r"conv1.weight.*encoder.stem.*64, 3, 7, 7.*64, 3, 3, 3"):
        ResNet("resnet18", stem="cifar", weights=file)
    with pytest.raises(UserError, match="do not belong"):
        ResNet("resnet50", stem="imagenet", weights=file)
    file.write_bytes(b"not weights")
    with pytest.raises(UserError, match="cannot read"):
        ResNet("resnet18", weights=file)
    with pytest.raises(UserError, match=r"gone.safetensors.*cannot read"):
        ResNet("resnet18", weights=tmp_path / "gone.safetensors")


@pytest.mark.parametrize(
    "error", [ImportError("no module"), RuntimeError("operator torchvision::nms does not exist")]
)
def test_a_torchvision_that_cannot_be_imported(monkeypatch, error):
    original_import = builtins.__import__

    def refuse(name, *args, **options):
        if name.startswith("torchvision"):
            raise error
        return original_import(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UserError, match=r"pip install 'mlcl\[images\]'") as excinfo:
        ResNet("resnet18")
    assert str(error) in str(excinfo.value)
