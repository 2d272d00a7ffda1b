"""Tables of papers: the jobs of their cells, and the figures that a paper prints."""
