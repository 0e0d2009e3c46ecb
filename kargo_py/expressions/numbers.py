"""Texts and numbers as Go reads and writes them; Python's own functions take more and write otherwise."""

from __future__ import annotations

import math
import re
from typing import Final

_DIGITS: Final = "[0-9]+(?:_[0-9]+)*"
_FLOAT: Final = re.compile(rf"[+-]?(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_HEX: Final = re.compile(r"[+-]?0[xX]_?(?=[0-9a-fA-F.])[0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?[pP][+-]?[0-9]+(?:_[0-9]+)*")
_SPECIAL: Final = re.compile(r"(?:[+-]?inf(?:inity)?|nan)", re.IGNORECASE)
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def parse_float(text: str) -> float | None:
    """What Go's ``strconv.ParseFloat`` reads, None for its errors; out of range is one."""
    if len(text) > 2000:
        return None
    if _FLOAT.fullmatch(text):
        number = float(text)
    elif _SPECIAL.fullmatch(text):
        return float(text)
    elif _HEX.fullmatch(text) and _underscores_fit(text):
        try:
            number = float.fromhex(text.replace("_", ""))
        except (OverflowError, ValueError):
            return None
    else:
        return None
    return number if math.isfinite(number) else None


def _underscores_fit(text: str) -> bool:
    """Whether each underscore stands between digits or after the prefix."""
    return not re.search(r"__|_[.pP]|\._|_$", text)


def parse_bool(text: str) -> bool | None:
    """What Go's ``strconv.ParseBool`` reads, None for anything else."""
    return _BOOLS.get(text)


def parse_int(text: str) -> int | None:
    """What Go's ``strconv.Atoi`` reads, None for its errors."""
    if not re.fullmatch(r"[+-]?[0-9]{1,400}", text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def _digits(number: float) -> tuple[str, str, int]:
    """Sign, shortest digits, and the power of ten of the first."""
    mantissa, exponent = f"{number!r}".lower().split("e") if "e" in repr(number) else (repr(number), "0")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    power = int(exponent) + len(whole) - 1 - (len(whole + fraction) - len(digits) if whole.strip("0") == "" else 0)
    digits = digits.rstrip("0")
    return sign, digits or "0", power if digits else 0


def _exponential(sign: str, digits: str, power: int, width: int) -> str:
    point = f".{digits[1:]}" if len(digits) > 1 else ""
    mark = "-" if power < 0 else "+"
    return f"{sign}{digits[0]}{point}e{mark}{abs(power):0{width}d}"


def _fixed(sign: str, digits: str, power: int) -> str:
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    if len(digits) <= power + 1:
        return sign + digits.ljust(power + 1, "0")
    return f"{sign}{digits[: power + 1]}.{digits[power + 1 :]}"


def format_float(number: float) -> str:
    """As Go's ``%v`` writes it."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    sign, digits, power = _digits(number)
    if power < -4 or power >= 6:
        return _exponential(sign, digits, power, 2)
    return _fixed(sign, digits, power)


def format_json_float(number: float) -> str:
    """As Go writes it in JSON; *number* must be finite."""
    sign, digits, power = _digits(number)
    if number != 0 and (abs(number) < 1e-6 or abs(number) >= 1e21):
        return _exponential(sign, digits, power, 1 if power < 0 else 2)
    return _fixed(sign, digits, power)
