"""The Project on a server, and Argo CD by hand, that the tests of the controllers have."""

from tests.controllers.conftest import cluster

__all__ = ["cluster"]
