"""What the commands around induced skills do: begin with `stream`."""
