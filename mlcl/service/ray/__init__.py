"""Ray as commands use it: a session, folders on the nodes, and groups of workers for a training."""
