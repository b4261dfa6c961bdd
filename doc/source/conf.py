"""Sphinx configuration of the swift-hapi manual."""

project = "swift-hapi"
author = "the swift-hapi developers"
copyright = "the swift-hapi developers, Apache-2.0"  # noqa: A001
extensions = []
html_theme = "alabaster"
html_theme_options = {
    "description": "Near-data transfer learning for OpenStack Swift",
    "fixed_sidebar": True,
}
exclude_patterns = []
nitpicky = True
