"""GPU-hours: what was held, what was used, what was held idle, by whom.

`queries` asks Prometheus for what the agents measure; without one, `held_now` says what is held now and since when.
`hours` adds it up. `prometheus` is the only part with I/O.
"""
