"""How the processes of a test with several ranks end."""

import os
import time
from pathlib import Path


def finish(rank, world, folder):
    """Ends at once when all have come here, without taking the group down.

    About one orderly exit in ten aborts ("terminate called without an active exception"): a native thread of
    the group is still there. Everything has been written by then.
    """
    done = [Path(folder) / f"done{r}" for r in range(world)]
    done[rank].touch()
    while not all(path.exists() for path in done):
        time.sleep(0.02)
    os._exit(0)
