"""The version of mlcl. Imports nothing: every layer may use it."""

__version__ = "0.1.0"
