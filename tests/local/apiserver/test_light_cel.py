"""The package ``cel`` without its terminal program."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = "from kargo_py.local.apiserver.light_cel import cel, add_stdlib_to_context\n"


def run(code: str) -> str:
    """Run *code* in a fresh interpreter; what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_light() -> None:
    """Nothing of the program is imported, and expressions work."""
    assert run(f"{LIGHT}import sys; print('prompt_toolkit' in sys.modules, cel.evaluate('1 + 1'))") == "False 2"


@pytest.mark.parametrize(
    "code",
    [
        f"{LIGHT}import cel as whole, cel.cli; assert whole is cel; print(cel.cli.__file__.endswith('cli.py'))",
        f"{LIGHT}from cel import cli; print(cli.__file__.endswith('cli.py'))",
        f"import cel as whole\n{LIGHT}assert whole is cel; print(cel.cli.__file__.endswith('cli.py'))",
    ],
    ids=["afterwards", "afterwards, from", "before"],
)
def test_whole(code: str) -> None:
    """Who wants the program, before or after us, has it, and there is one package."""
    assert run(code) == "True"
