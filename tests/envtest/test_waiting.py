"""What is waited for, read out of an object."""

import pytest

from tests.envtest.waiting import holds, steps

OBJ = {
    "metadata": {"annotations": {"example.com/word": "now"}},
    "status": {
        "phase": "Running",
        "index": 1,
        "list": [{"x": "a"}, {"x": ""}],
        "conditions": [{"type": "T", "status": "True"}],
    },
}


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (".status.phase", "", True),
        (".status.phase", "Running", True),
        (".status.phase", "Run", False),
        (".status.index", "1", True),
        (".status.absent", "", False),
        (".status.phase.deeper", "", False),
        (r".metadata.annotations.example\.com/word", "now", True),
        (".status.list[0].x", "a", True),
        (".status.list[1].x", "a", False),
        (".status.list[2].x", "", False),
        (".status.conditions[?(@.type=='T')].status", "True", True),
        (".status.conditions[?(@.type=='U')].status", "", False),
    ],
)
def test_holds(path: str, value: str, expected: bool) -> None:
    """Only what is there holds, and with a value only that."""
    assert holds(OBJ, path, value) is expected


def test_a_path_that_is_not_read() -> None:
    """Nothing is waited for that could never be found."""
    with pytest.raises(ValueError, match=r"nothing is known of \[\*\]"):
        list(steps(".status.list[*]"))
