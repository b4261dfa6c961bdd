"""The proxy filter: computes features inside a Swift GET; see ``filter`` for its manual."""


def filter_factory(global_conf, **local_conf):
    """Paste's entry point (``egg:swift-hapi#hapi``).

    :raises ValueError: naming the option at fault
    """
    # Imported here so that importing a single module of this package does not pull in Swift.
    from swift_hapi.middleware.filter import filter_factory as factory

    return factory(global_conf, **local_conf)
