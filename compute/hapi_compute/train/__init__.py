"""Fine-tuning of the trainable part over features from the store.

``run(config, store, progress) -> Report`` is all a caller needs; torch is imported by the call.
"""


def run(config, store, progress=None):
    """See :func:`hapi_compute.train.job.run`."""
    from hapi_compute.train import job

    return job.run(config, store, progress)
