"""A pickle that runs code."""


class Hostile:
    """Makes a file when it is unpickled."""

    def __init__(self, file):
        self.file = str(file)

    def __reduce__(self):
        return (open, (self.file, "w"))
