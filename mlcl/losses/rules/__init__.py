"""The built-in losses, one per file: each computes the weight W of every pair of rows from labels."""
