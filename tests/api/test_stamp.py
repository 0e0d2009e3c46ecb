"""The stamp: what is made can be read back, and nothing else can."""

import pytest
from hypothesis import given, strategies as st

from kargo_py.api.stamp import MAX_LENGTH, Stamp, StampError, check_instance, make_stamp, parse_stamp

UID = "2da14399-be1e-444e-a945-cc4aeca9a961"
STAMP = Stamp("east", "shop", "dev.01jyz8q4n8v5k2m3r7t9w1x6ab.3f1a0f6", UID, "update", 1)
TEXT = f"v1/east/shop/dev.01jyz8q4n8v5k2m3r7t9w1x6ab.3f1a0f6/{UID}/update/1"


def test_text() -> None:
    """A usual stamp is its parts with slashes between them; this text is stored in clusters and cannot change."""
    assert str(STAMP) == TEXT
    assert parse_stamp(TEXT) == STAMP


PART = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


@given(parts=st.tuples(PART, PART, PART, PART), attempt=st.integers(1, 999999))
def test_what_is_made_reads_back(parts: tuple[str, str, str, str], attempt: int) -> None:
    """Whatever characters the parts have, the stamp reads back as it was."""
    stamp = make_stamp("east", *parts, attempt)
    assert parse_stamp(str(stamp)) == stamp


@given(st.text(st.sampled_from("v1/aA%02F. ü"), max_size=30).map(lambda tail: f"v1/{tail}"))
def test_only_the_normal_form_reads(text: str) -> None:
    """A text that reads as a stamp is exactly the text that this stamp prints: equal stamps are equal texts."""
    try:
        stamp = parse_stamp(text)
    except StampError:
        return
    assert str(stamp) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "version '' is not one"),
        (TEXT.replace("v1", "v2", 1), "version 'v2' is not one"),
        ("v1/east/shop", "has 2 parts"),
        (f"{TEXT}/1", "has 7 parts"),
        (TEXT.replace("shop", ""), "a part is empty"),
        (TEXT.replace("shop", "sh%op"), "wrongly encoded"),
        (TEXT.replace("shop", "sh%6fp"), "wrongly encoded"),
        (TEXT.replace("shop", "sh%6Fp"), "not in its normal form"),
        (TEXT.replace("shop", "sh\u00fcp"), "not in its normal form"),
        (TEXT.replace("east", "-east"), "instance id '-east'"),
        (TEXT.removesuffix("1") + "0", "attempt '0'"),
        (TEXT.removesuffix("1") + "01", "attempt '01'"),
        (TEXT + "234567", "attempt '1234567'"),
        ("v1/" + "a" * MAX_LENGTH, "at most 1024"),
    ],
)
def test_no_stamp(text: str, reason: str) -> None:
    """What is not exactly a stamp is refused with the reason: work is never taken for ours by mistake."""
    with pytest.raises(StampError, match=reason):
        parse_stamp(text)


@pytest.mark.parametrize(
    ("parts", "attempt"),
    [
        (("", "b", "c", "d"), 1),
        (("a", "b", "c", ""), 1),
        (("a", "b", "c", "d"), 0),
        (("a" * MAX_LENGTH, "b", "c", "d"), 1),
    ],
    ids=["no namespace", "no step", "attempt 0", "too long"],
)
def test_no_stamp_can_be_made(parts: tuple[str, str, str, str], attempt: int) -> None:
    """A stamp that could not be read back is not made."""
    with pytest.raises(StampError):
        make_stamp("east", *parts, attempt)


@pytest.mark.parametrize("instance", ["", "a b", "a/b", ".a", "a-", "a" * 64, "ü"])
def test_no_instance(instance: str) -> None:
    """The id of a control plane has the characters of a label value."""
    with pytest.raises(StampError, match="must be 1 to 63"):
        check_instance(instance)


@pytest.mark.parametrize("instance", ["a", UID, "East_1.x", "a" * 63])
def test_instance(instance: str) -> None:
    """A UID can name a control plane, and so can a word."""
    assert check_instance(instance) == instance
