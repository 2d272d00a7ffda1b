"""The time that a test waits: a hang ends it, a slow or busy machine does not."""

import time

PATIENCE = 1200.0
"""Seconds after which something counts as hung."""


def until(condition, every=0.05):
    """Returns the first true value of the condition; fails after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(every)
    return found
