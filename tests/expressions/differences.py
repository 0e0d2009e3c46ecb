"""Where we do otherwise than the Go library on purpose; the reasons stand on docs/reference/expressions.md."""

from __future__ import annotations

CONSTANTS = "Types are checked when a value is used"
LITERALS = "An error in a literal points at it"
EARLIER = "A second `let` of a name, a `let` with the name of a builtin, and an unknown `#pointer` are syntax errors"
PLUS = "`+x` needs a number"
NIL_BOOL = "`nil && true` and `nil || true` are errors"
ODD_BUILTINS = "`max`, `min` and `sort` refuse what is neither a number nor a list"
DURATION = "A duration times a float is a duration"
METHODS = "A method without its call is a function"

DIFFERENCES = {
    **dict.fromkeys(
        ("0x", "1e", "1e400", "9223372036854775808", r'"\u{110000}"', r'"\x4"', r'"\400"', r'b"\u0041"'), LITERALS
    ),
    **dict.fromkeys(("let x = 1; let x = 2; x", "let len = 1; len", "map(l, #x)"), EARLIER),
    **dict.fromkeys(("+b", "+s", "+n", "+l", "+m"), PLUS),
    **dict.fromkeys(("n && true", "n || true"), NIL_BOOL),
    **dict.fromkeys(("max(s)", "max(n)", "min(s)", "sort(s)"), ODD_BUILTINS),
    'duration("1h") * 1.5': DURATION,
    'date("2023-08-15").Year': METHODS,
    **dict.fromkeys(
        (
            *("1..1.5", '"abc"[0]', "true || 1", "false || 1", "true && 1", "map(l, nil)", 'repeat("ab", 1.5)'),
            *("1 in nil", '"a" == 1'),
        ),
        CONSTANTS,
    ),
}
