"""Closed forms of the weights: their products with the embeddings, without a B x B matrix."""
