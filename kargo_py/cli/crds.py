"""``kargo-py crds``: the CustomResourceDefinitions as one YAML stream."""

from __future__ import annotations

from kargo_py.api.crd import document
from kargo_py.api.kinds import KINDS
from kargo_py.messages import Shown, message

SOURCES_MISSING = message(
    "the CRDs cannot be made, because the sources of kargo-py are not here: {why}",
    do="The descriptions of the fields stand in them. Install kargo-py from its wheel, or apply the files of `crds/` "
    "in its repository.",
    shown=Shown.COMMAND_LINE,
)


class CannotPrint(Exception):
    """There is nothing to print; its text says why."""


def stream(*, strict: bool) -> str:
    """Every definition, as ``kubectl apply -f -`` reads them. Raises CannotPrint."""
    try:
        return "".join(f"---\n{document(kind, strict=strict)}" for kind in KINDS)
    except OSError as error:
        raise CannotPrint(SOURCES_MISSING(why=error)) from error
