"""`mlcl losses` and its like show what the registries have."""

import json

import pytest
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.errors import UserError
from mlcl.losses import LOSSES
from mlcl.plugins import REGISTRIES, registry

WORDS = {
    "losses": ["losses"],
    "encoders": ["encoders"],
    "sources": ["data", "sources"],
    "metrics": ["metrics"],
    "baselines": ["baselines"],
}


def output(*words):
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.parametrize("plural", REGISTRIES)
def test_all_plugins_are_listed(plural):
    listed = json.loads(output(*WORDS[plural], "--json"))
    assert set(listed) == set(registry(plural))
    table = output(*WORDS[plural])
    assert all(name[:4] in table for name in listed)


@pytest.mark.parametrize("plural", REGISTRIES)
def test_one_is_shown_in_full(plural):
    name = next(iter(registry(plural)))
    shown = json.loads(output(*WORDS[plural], name, "--json"))[name]
    assert shown["from"] == "built in"
    assert shown["what"]


def test_the_options_of_a_loss_are_its_own():
    shown = json.loads(output("losses", "simdis", "--json"))["simdis"]["options"]
    assert list(shown) == list(LOSSES["simdis"].options)
    assert shown["penalty"] == {"default": "inverse", "allowed": "inverse, exponential"}
    assert shown["rate"] == {"default": None, "allowed": "a number above 0"}


def test_the_keys_of_an_encoder_are_its_sections():
    shown = json.loads(output("encoders", "cnn_text", "--json"))["cnn_text"]["options"]
    assert shown["width"] == {"default": 100, "allowed": "int", "what": "filters of each kernel size"}
    assert "name" not in shown


@pytest.mark.parametrize("plural", REGISTRIES)
def test_an_unknown_name_lists_the_nearest(plural):
    name = next(iter(registry(plural)))
    with pytest.raises(UserError, match=f"did you mean {name}\\?; found: {name}x; allowed: ") as caught:
        CliRunner().invoke(app, [*WORDS[plural], f"{name}x"], catch_exceptions=False)
    assert name in caught.value.allowed
