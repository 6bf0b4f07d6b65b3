"""What all sources share: their base, ids, bundles, tombstones, what is unchanged; begin with `base`."""
