"""The built-in losses, one a file: each computes the weight W of every pair of rows from labels."""
