"""Reads users' tables of rows; the commands `init`, `prepare`, `check` and `predict` share this reader."""
