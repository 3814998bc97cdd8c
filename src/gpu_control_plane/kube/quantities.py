"""Kubernetes' numbers with units, as in `resources`: `500m`, `2k`, `1Gi`, `1e3`."""

import re
from decimal import Decimal
from typing import Final

_QUANTITY: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE]?)|[eE]([+-]?[0-9]+))")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def parse_quantity(text: str) -> Decimal:
    """The number that a quantity stands for; `ValueError` for what the API server would not have accepted either."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, suffix, exponent = found.groups()
    try:
        if exponent is not None:
            return Decimal(number).scaleb(int(exponent))
        if suffix in _BINARY:
            return Decimal(number) * Decimal(1024) ** _BINARY[suffix]
        return Decimal(number).scaleb(_DECIMAL[suffix])
    except ArithmeticError as error:
        raise ValueError("the quantity is too large to be one") from error
