"""The HTTP client: requests go out within quotas, politely, with retries; begin with `client`.

`limiter` says how long to wait after a 429.
"""
