"""Expressions as Kargo writes them: expr-lang, its templates, and the functions a Promotion's steps have.

Pure: a function of a source text, an environment of values and a time. Nothing here does input or output; what has to
be read from a cluster comes in through a protocol that the caller implements.
"""
