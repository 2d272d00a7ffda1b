"""The version of mlcl. This module imports nothing, so that every layer may use it."""

__version__ = "0.1.0"
