"""The folder and the state of a training, and its Ray Train group where it has several workers."""
