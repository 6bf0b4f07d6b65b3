"""What tests share: processes to kill, servers, roots, models and texts."""
