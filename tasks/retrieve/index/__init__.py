"""The index: nodes come in, LanceDB tables and the gate's checks go out; begin with `build`."""
