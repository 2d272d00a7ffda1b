"""Reads the tables of papers: the jobs of the cells, and the numbers printed in the paper."""
