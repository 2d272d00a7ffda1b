"""A loss and an encoder for mlcl, each declared in one file."""
