"""Models by name: architecture, weights, preprocessing."""

from hapi_compute.models.loading import LoadedModel, load_model

__all__ = ["LoadedModel", "load_model"]
