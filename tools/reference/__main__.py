"""Writes the generated parts of the reference: ``python -m tools.reference [--check] docs/reference``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.reference.pages import PageError, stale, wanted


def main(arguments: Sequence[str]) -> int:
    """Write or check the pages; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description="Write the reference.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="only say which pages are not current")
    options = parser.parse_args(arguments)
    try:
        pages = wanted(options.folder)
    except PageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    changed = [p for p, text in pages.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    gone = stale(options.folder, pages)
    if options.check:
        if changed or gone:
            names = ", ".join(sorted(map(str, [*changed, *gone])))
            sys.stderr.write(f"not current: {names}; run `make reference` and commit the result\n")
        return 1 if changed or gone else 0
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages[path], encoding="utf-8")
    for path in gone:
        path.unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
