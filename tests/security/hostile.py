"""An object whose pickle runs code when it is loaded, shared by the tests of this folder."""


class Hostile:
    """An object whose pickle creates `file` when it is loaded."""

    def __init__(self, file):
        self.file = str(file)

    def __reduce__(self):
        return (open, (self.file, "w"))
