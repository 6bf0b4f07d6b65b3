"""The HTTP client: requests go out within quotas, politely, with retries; begin with `client`."""
