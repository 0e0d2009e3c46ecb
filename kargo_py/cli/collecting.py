"""How often a process of ours looks for garbage."""

from __future__ import annotations

import gc

_THRESHOLDS = (50_000, 20, 50)


def collect_seldom() -> None:
    """Set the interpreter up for many objects that stay.

    Parsing a list makes hundreds of thousands of them, which the default threshold of 700 would scan over and over: a
    bare parse of 1,000 Applications takes 80 ms with it, 48 ms with these, and a write to the embedded API server a
    tenth less.
    """
    gc.set_threshold(*_THRESHOLDS)
