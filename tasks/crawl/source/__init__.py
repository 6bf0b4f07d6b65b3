"""What all sources share: the protocol, ids, bundles, limits, tombstones; begin with `protocol`."""
