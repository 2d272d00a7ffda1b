"""Many trainings: the ledger, the executor on Ray Tune, the budget, recovery and progress."""
