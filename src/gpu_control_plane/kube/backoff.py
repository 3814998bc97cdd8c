"""How long to wait after the n-th failure: exponential, bounded, with jitter so that crowds spread out."""

import random

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """Delays grow from `first` by `factor` to `most`; each is drawn from the upper half of its range."""

    first: float = 0.05
    most: float = 60.0
    factor: float = 2.0

    def delay(self, failures: int, rng: random.Random) -> float:
        """The pause after `failures` failures in a row (the first failure is 1)."""
        # The exponent is capped so that a key which fails for weeks does not overflow a float.
        ceiling = min(self.most, self.first * self.factor ** min(failures - 1, 64))
        return ceiling * rng.uniform(0.5, 1.0)
