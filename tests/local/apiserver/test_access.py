"""Who is let in; codes and messages are the real server's."""

from __future__ import annotations

import pytest

from kargo_py.local.apiserver.access import Guard, make_token
from kargo_py.local.apiserver.wire import Request

GUARD = Guard({"secret": "me"})


def refusal(header: str | None, method: str = "GET", path: str = "/api/v1/namespaces") -> tuple[int, list[str]]:
    """The code, 0 for none, and the warnings."""
    headers = {} if header is None else {"authorization": header}
    refused = GUARD.refusal(Request(method, path, (), headers))
    return (0, []) if refused is None else (refused[0].code, [*refused[1]])


@pytest.mark.parametrize(
    "header", ["Bearer secret", "bearer secret", "BEARER secret", " Bearer secret ", "Bearer secret x"]
)
def test_token(header: str) -> None:
    """The scheme is case-insensitive, and what follows the token is not looked at."""
    assert refusal(header) == (0, [])


@pytest.mark.parametrize("header", ["Bearer nope", "Bearer secre", "Bearer secretx", "Bearer \xff"])
def test_wrong_token(header: str) -> None:
    """A wrong token is refused, whatever the path."""
    assert refusal(header) == (401, [])
    assert refusal(header, path="/healthz") == (401, [])


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Token secret", "Basic c2VjcmV0", "secret"])
def test_no_token(header: str | None) -> None:
    """What is no bearer token counts as none: forbidden, but for the four paths that are open to everybody."""
    assert refusal(header) == (403, [])
    assert [refusal(header, path=path)[0] for path in ("/healthz", "/livez", "/readyz", "/version", "/version/")] == [
        0
    ] * 5


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/healthz"), ("GET", "/healthz/"), ("GET", "/livez/ping"), ("GET", "/")]
)
def test_not_open(method: str, path: str) -> None:
    """Only these paths, and only to read."""
    assert refusal(None, method, path)[0] == 403


def test_space_before_token() -> None:
    """A token after two spaces is ignored, with a warning."""
    code, warnings = refusal("Bearer  secret")
    assert code == 403
    assert warnings == [
        "the provided Authorization header contains extra space before the bearer token, and is ignored"
    ]


@pytest.mark.parametrize(
    ("line", "message", "details"),
    [
        ("GET /api", 'forbidden: User "system:anonymous" cannot get path "/api"', {}),
        ("GET /a%3Cb%3E&c", 'forbidden: User "system:anonymous" cannot get path "/a&lt;b&gt;&amp;c"', {}),
        (
            "GET /api/v1/namespaces",
            'namespaces is forbidden: User "system:anonymous" cannot list resource "namespaces" in API group "" at the cluster scope',  # noqa: E501
            {"kind": "namespaces"},
        ),
        (
            "PATCH /apis/kargo.akuity.io/v1alpha1/namespaces/p/stages/s/status",
            'stages.kargo.akuity.io "s" is forbidden: User "system:anonymous" cannot patch resource "stages/status" in API group "kargo.akuity.io" in the namespace "p"',  # noqa: E501
            {"name": "s", "group": "kargo.akuity.io", "kind": "stages"},
        ),
    ],
)
def test_message(line: str, message: str, details: dict[str, str]) -> None:
    """What a client without credentials reads."""
    method, _, path = line.partition(" ")
    refused = GUARD.refusal(Request(method, path))
    assert refused is not None
    assert refused[0].status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "Forbidden",
        "details": details,
        "code": 403,
    }


@pytest.mark.parametrize("token", ["", "a b", "ü", "a\n"])
def test_impossible_tokens(token: str) -> None:
    """A token that no client could send is refused at once."""
    with pytest.raises(ValueError, match="printable ASCII"):
        Guard({token: "me"})


def test_made_tokens() -> None:
    """They are long and differ."""
    assert len({make_token() for _ in range(10)}) == 10
    assert len(make_token()) >= 43
