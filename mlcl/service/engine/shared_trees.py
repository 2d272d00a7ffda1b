"""Lets many JSON trees, such as the jobs of a sweep's trainings, share their equal parts in memory."""

from __future__ import annotations

import operator
from itertools import zip_longest
from typing import Any


def share(tree: Any, like: Any) -> Any:
    """Returns a JSON tree equal to `tree`, in which each part that `like` has, too, is the part of `like`.

    Neither tree may be changed afterwards. Parts are equal if `json.dumps` writes them alike: 1, 1.0 and True
    are three values, and the order of keys counts.

    Example:
        >>> first, second = {"data": {"n": 1}, "lr": 0.1}, {"data": {"n": 1}, "lr": 0.2}
        >>> shared = share(second, first)
        >>> shared == second, shared["data"] is first["data"]
        (True, True)
    """
    if type(tree) is not type(like):
        return tree
    if isinstance(tree, dict):
        tree = {key: share(value, like.get(key)) for key, value in tree.items()}
        same = list(tree) == list(like) and all(tree[key] is like[key] for key in tree)
    elif isinstance(tree, list):
        tree = [share(value, other) for value, other in zip_longest(tree, like[: len(tree)])]
        same = len(tree) == len(like) and all(map(operator.is_, tree, like))
    else:
        same = repr(tree) == repr(like)
    return like if same else tree
