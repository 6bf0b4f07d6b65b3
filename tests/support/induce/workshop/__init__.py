"""A bicycle workshop as a web application on loopback, tasks in it, and their recordings in a browser."""
