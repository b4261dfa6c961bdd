"""A network run over a dataset once: features, predictions, accuracy."""
