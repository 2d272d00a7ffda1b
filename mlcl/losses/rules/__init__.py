"""The rules, one a file: each turns labels into the weight W of every pair of rows."""
