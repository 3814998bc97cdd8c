"""How long to wait after the n-th failure: exponential, bounded, with jitter so that crowds spread out."""

import random

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """Delays grow from `first` by `factor` to `most`. `jitter` is the part of each that is drawn: with 1.0, «full
    jitter», any delay from none to the whole is as likely as any other."""

    first: float = 0.05
    most: float = 60.0
    factor: float = 2.0
    jitter: float = 0.5

    def ceiling(self, failures: int) -> float:
        """The longest pause after `failures` failures in a row (the first failure is 1)."""
        # The exponent is capped so that a key which fails for weeks does not overflow a float.
        return min(self.most, self.first * self.factor ** min(failures - 1, 64))

    def delay(self, failures: int, rng: random.Random) -> float:
        """The pause after `failures` failures in a row."""
        return self.ceiling(failures) * rng.uniform(1.0 - self.jitter, 1.0)
