"""From nodes to answers: `index`, `versions` write; `routing`, `paging` answer from `served_index`."""
