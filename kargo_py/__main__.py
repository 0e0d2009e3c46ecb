"""``python -m kargo_py``: the ``kargo-py`` command."""

from __future__ import annotations

from kargo_py.cli.main import main

if __name__ == "__main__":
    main()
