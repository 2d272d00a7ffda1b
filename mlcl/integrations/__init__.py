"""Adapters of the losses to trainers, one module each, which imports its framework and torch alone.

`sentence_transformers`, `lightning`, and `transformers` for the Hugging Face Trainer. A loop in plain PyTorch
needs no adapter: it calls `mlcl.losses`, `mlcl.samplers` and `mlcl.grad_cache` directly.
"""
