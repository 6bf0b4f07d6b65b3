"""Training: labelled data and corpora come in, weights and their cards go out; begin at `routing`.

`routing` serves the command `train routing`; the other modules with a `main` make the packaged weights again,
each by `python -m`. Nothing below this stage imports it.
"""
