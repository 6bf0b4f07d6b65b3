"""A web application in a browser: actions in, outlines of pages and its state out; begin with `page`."""
