"""Memory policies of a storage-side server, on the same made-up devices and traces."""
