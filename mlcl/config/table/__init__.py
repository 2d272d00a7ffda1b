"""Reads the tables of papers: the jobs of the cells, and the figures in the paper."""
