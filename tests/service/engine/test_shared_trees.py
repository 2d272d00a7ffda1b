"""Tests of JSON trees that share equal parts in memory."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.service.engine.ledger import share

NUMBERS = st.integers(-2, 2) | st.sampled_from([0.0, -0.0, 1.0, 0.5])
LEAVES = st.none() | st.booleans() | NUMBERS | st.sampled_from("ab")


def _branches(its):
    return st.lists(its, max_size=3) | st.dictionaries(st.sampled_from("abc"), its)


TREES = st.recursive(LEAVES, _branches, max_leaves=12)


@settings(deadline=None)
@given(TREES, TREES)
def test_nothing_is_changed(tree, like):
    before = json.dumps(tree), json.dumps(like)
    result = share(tree, like)
    assert (json.dumps(result), json.dumps(like)) == before


@settings(deadline=None)
@given(TREES)
def test_an_equal_tree_is_the_other_one(tree):
    copy = json.loads(json.dumps(tree))
    assert share(copy, tree) is tree


def test_parts_that_differ_alone_are_kept():
    like = {"data": {"path": "a", "n": [1, 2]}, "train": {"lr": 0.1, "seed": 0}}
    tree = {"data": {"path": "a", "n": [1, 2]}, "train": {"lr": 0.2, "seed": 0}}
    result = share(tree, like)
    assert result["data"] is like["data"]
    assert result["train"] == {"lr": 0.2, "seed": 0}
    assert share({"n": 1.0}, {"n": 1})["n"].is_integer()
    assert list(share({"b": 1, "a": 1}, {"a": 1, "b": 1})) == ["b", "a"]
