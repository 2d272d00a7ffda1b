"""The time that a test waits: long enough for a slow or busy machine, and shorter than a hang."""

import time

PATIENCE = 1200.0
"""The seconds after which a wait counts as a hang."""


def until(condition, every=0.05):
    """Returns the first true value of the condition; fails after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(every)
    return value
