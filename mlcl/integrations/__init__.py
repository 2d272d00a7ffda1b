"""Adapters of the losses to trainers, each a module that imports only its trainer's framework and torch.

They are `sentence_transformers`, `lightning`, and `transformers` for the Hugging Face Trainer. A loop in
plain PyTorch needs no adapter: it calls `mlcl.losses`, `mlcl.samplers` and `mlcl.grad_cache` directly.
"""
