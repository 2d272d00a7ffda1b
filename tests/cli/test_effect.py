"""`mlcl effect`: the expected score over a key, from the ledger alone."""

import json

import pytest
from builders import tiny_job
from sweeps import World
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.errors import UserError

HEADS = "objective.heads"
SPACE = f"space: {{{HEADS}.*.temperature: {{log_float: [0.05, 1.0]}}}}\nsearch: {{scheduler: none}}"


@pytest.fixture(scope="module")
def home(tiny, tmp_path_factory):
    """A sweep whose score is the mean over heads of exp(-log(tau / 0.2)^2), but for the epochs."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(tmp_path_factory.mktemp("effect"), patch)
        world.run(world.plan(tiny_job(tiny), SPACE, trials=40, name="seek"))
        return world.home


def curve(home, *words):
    answer = CliRunner().invoke(app, ["effect", "seek", *words, "--json", "--home", str(home)])
    if answer.exception is not None:
        raise answer.exception
    return json.loads(answer.stdout)


def best(found):
    return max(found["curve"], key=lambda row: row["expected"])


def test_the_best_value_is_found_and_the_key_may_be_cut_short(home):
    found = curve(home, "detail.temperature")
    assert (found["key"], found["trials"], found["mode"]) == (f"{HEADS}.detail.temperature", 40, "max")
    assert best(found)["value"] == pytest.approx(0.2, rel=0.4)
    assert found["curve"][0]["expected"] < best(found)["expected"] > found["curve"][-1]["expected"]


def test_another_key_is_held_where_it_is_asked_for(home):
    near, far = (curve(home, "detail.temperature", "--at", f"topic.temperature={at}") for at in (0.2, 0.9))
    assert best(near)["expected"] > best(far)["expected"] + 0.2
    assert near["at"] == {f"{HEADS}.topic.temperature": 0.2}


def test_people_get_a_table(home):
    answer = CliRunner().invoke(app, ["effect", "seek", "detail.temperature", "--home", str(home)])
    assert "val/accuracy (max) over objective.heads.detail.temperature; 40 complete" in answer.stdout
    assert "best near objective.heads.detail.temperature 0." in answer.stdout


@pytest.mark.parametrize(
    ("key", "problem"),
    [("temperature", "ends several keys"), ("detail.temperatur", "is no number that varies")],
)
def test_a_key_that_is_none_or_several(home, key, problem):
    with pytest.raises(UserError, match=problem):
        curve(home, key)
