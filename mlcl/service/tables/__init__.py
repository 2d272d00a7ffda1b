"""Reproduces tables of papers: trains the missing cells, and shows their metrics beside the printed ones."""
