"""Predicates over (old, new)."""

from __future__ import annotations

import pytest

from kargo_py.kube.predicates import Predicate, always, changed, created, deleted

EVEN: Predicate[int] = Predicate(lambda _old, new: new is not None and new % 2 == 0)


@pytest.mark.parametrize(
    ("predicate", "passes"),
    [
        (created(), [True, False, False, False]),
        (deleted(), [False, True, False, False]),
        (changed(lambda n: n), [False, False, True, False]),
        (always(), [True, True, True, True]),
        (created() | deleted(), [True, True, False, False]),
        (EVEN & created(), [True, False, False, False]),
        (~created(), [False, True, True, True]),
        (changed(lambda n: n % 2), [False, False, True, False]),
    ],
)
def test_predicate(predicate: Predicate[int], passes: list[bool]) -> None:
    """Creation, deletion, a change and no change pass as the name says."""
    changes = [(None, 2), (2, None), (1, 2), (2, 2)]
    assert passes == [predicate(old, new) for old, new in changes]
