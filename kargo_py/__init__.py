"""Kargo-style promotion controllers for Python.

The names below are for programs that embed the controllers; docs/how-to/embed.md shows how. They are imported when they
are first asked for, so that ``import kargo_py`` costs nothing. Everything else is imported from its module:
``from kargo_py.api.promotion import Promotion``.
"""

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all else here

if TYPE_CHECKING:
    from kargo_py.controllers.embedding import (
        Controllers,
        PromotionController,
        Shared,
        StageController,
        connect,
        connect_like,
    )
    from kargo_py.controllers.running import StartError
    from kargo_py.controllers.world import Responsibility
    from kargo_py.deployers.argocd import ArgoCD

__version__ = "0.1.0"

__all__ = [
    "ArgoCD",
    "Controllers",
    "PromotionController",
    "Responsibility",
    "Shared",
    "StageController",
    "StartError",
    "__version__",
    "connect",
    "connect_like",
]

_HOMES = {
    "ArgoCD": "deployers.argocd",
    "Controllers": "controllers.embedding",
    "PromotionController": "controllers.embedding",
    "Responsibility": "controllers.world",
    "Shared": "controllers.embedding",
    "StageController": "controllers.embedding",
    "StartError": "controllers.running",
    "connect": "controllers.embedding",
    "connect_like": "controllers.embedding",
}


if not TYPE_CHECKING:  # else type checkers would take every name for one that is there

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - the rest costs nothing until here

        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})
