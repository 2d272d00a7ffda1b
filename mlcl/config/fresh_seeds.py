"""The fresh seeds, with which the settings that searches picked are trained again."""

import math

SEEDS_OF_A_SEARCH = 1000
"""The distance between the first seeds of two consecutive searches."""


def fresh_seeds(seed: int, search: int, count: int) -> range:
    """Returns the fresh seeds of a search (numbered from 1), which no search and no race of the job uses.

    Example:
        >>> [*fresh_seeds(0, 1, 2), *fresh_seeds(0, 2, 2)]
        [1, 2, 1001, 1002]
    """
    first = seed + SEEDS_OF_A_SEARCH * (search - 1) + 1
    return range(first, first + count)


def fresh_seeds_of(searches: int, count: int) -> list[int]:
    """Returns the fresh seeds of a cell's searches. Each has an equal share of `count`, rounded up."""
    each = math.ceil(count / searches)
    return [its for number in range(1, searches + 1) for its in fresh_seeds(0, number, each)]
