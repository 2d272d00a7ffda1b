"""The same weights in closed form: their products with the embeddings, without a B x B matrix."""
