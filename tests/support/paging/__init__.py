"""Documents and requests for the tests of paging."""
