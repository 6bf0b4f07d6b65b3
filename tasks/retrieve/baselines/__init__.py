"""Published methods that ours are measured against: the same in and out; begin with `skillpager`."""
