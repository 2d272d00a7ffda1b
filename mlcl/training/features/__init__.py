"""Computes the frozen inputs of the encoder `features`.

`extractor.py` declares an extractor, a function from texts, images or vectors to rows of numbers; `tfidf.py`,
`words.py`, `transformer.py` and `image.py` have one each. `cache.py` keeps these rows on disk, and
`inputs.py` reads the rows that a job or an exported model needs. The keys of the inputs in a job are declared
in `mlcl.models.encoders.features`.
"""
