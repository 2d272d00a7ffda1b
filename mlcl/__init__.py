"""mlcl: which multi-label or hierarchical contrastive loss works on your data, and at which settings."""

__version__ = "0.1.0"
