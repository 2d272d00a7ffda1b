"""The seeds with which the picks of searches are trained again."""

import math

SEEDS_OF_A_SEARCH = 1000
"""The distance between the first seeds of two searches."""


def fresh_seeds(seed: int, search: int, count: int) -> range:
    """The seeds that confirm the pick of a search, from the job's: none is a search's or a race's.

    Example:
        >>> [*fresh_seeds(0, 1, 2), *fresh_seeds(0, 2, 2)]
        [1, 2, 1001, 1002]
    """
    first = seed + SEEDS_OF_A_SEARCH * (search - 1) + 1
    return range(first, first + count)


def fresh_seeds_of(seed: int, searches: int, count: int) -> list[int]:
    """The seeds that confirm the picks of all searches of an arm, which divide `count` of them."""
    each = math.ceil(count / searches)
    return [its for number in range(1, searches + 1) for its in fresh_seeds(seed, number, each)]
