"""The ``kargo-py`` command."""
