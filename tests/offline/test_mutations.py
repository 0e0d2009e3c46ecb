"""Files in which anything may stand anywhere: lint and render say what is wrong, and never fail of it themselves."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

from kargo_py.cli.main import app
from tests.offline.pipelines import SECRET, WHOLE

DOCUMENTS = [document for text in WHOLE.values() for document in yaml.safe_load_all(text)]
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, 0, -1, 1.5, 10**30, "", " ", "x", "${{", "${{ }}", "${{ vars }}", "${{ outputs }}", "null"),
        *("${{ secret('creds') }}", "${{ secret(vars.tag) }}", "${{ configMap('../x').y }}", "${{ 1/0 }}", "a" * 300),
        *([], {}, [[]], [None], {"a": {"b": []}}, {"": ""}, ["x", 1], {"name": 7}, {"name": "x", "kind": "Warehouse"}),
    ]
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All paths within *value*."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(below for key, item in items for below in paths(item, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """*value* with *new* at *path*."""
    if not path:
        return new
    made: Any = dict(value) if isinstance(value, dict) else list(value)
    made[path[0]] = changed(made[path[0]], path[1:], new)
    return made


@st.composite
def mutated(draw: st.DrawFn) -> list[Any]:
    documents = list(DOCUMENTS)
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, len(documents) - 1))
        path = draw(st.sampled_from(paths(documents[index])))
        documents[index] = changed(documents[index], path, draw(ODD))
    return documents


@given(mutated())
@settings(max_examples=60, deadline=None)
def test_anything(documents: list[Any]) -> None:
    """They end with 0, 1 or 2; what goes wrong has a line of its own, and no secret is told."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.yaml")
        path.write_text(yaml.safe_dump_all(documents))
        for arguments in (["lint", str(path)], ["render", "-f", str(path)]):
            done = CliRunner().invoke(app, arguments)
            assert done.exception is None or isinstance(done.exception, SystemExit), arguments
            assert done.exit_code in {0, 1, 2}
            assert done.exit_code == 0 or done.stdout or done.stderr
            assert SECRET not in done.stdout + done.stderr
