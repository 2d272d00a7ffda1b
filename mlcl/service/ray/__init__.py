"""The use of Ray by commands: sessions, folders on the nodes, and groups of workers for a training."""
