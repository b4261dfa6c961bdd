"""Fine-tuning of the trainable part over features from the store.

``run(config, store, progress) -> Report`` is all a caller needs; torch is imported by the call.
"""

import os


def run(config, store, progress=None):
    """See :func:`hapi_compute.train.job.run`. Two runs cannot have one ``config.out``.

    :raises ValueError: another run has it
    """
    from hapi_compute.train.outdir import held

    # Of several ranks the first one writes.
    with held(config.out if os.environ.get("RANK", "0") == "0" else None):
        from hapi_compute.train import job

        return job.run(config, store, progress)
