"""What two copies of a text have in common, so that they can be kept out of two splits."""

from __future__ import annotations

import re

WORD = re.compile(r"\w+")


def words_of(text: str) -> str:
    """The words of a text in small letters, one space between; the text itself where it has none."""
    return " ".join(WORD.findall(text.casefold())) or text
