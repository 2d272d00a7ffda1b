"""Where data comes from: one module a source, with its options and a function that writes the format."""
