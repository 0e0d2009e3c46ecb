"""The custom resources of ``kargo.akuity.io/v1alpha1`` as pydantic models, their naming rules and their CRDs."""
