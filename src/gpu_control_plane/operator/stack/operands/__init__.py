"""The operands of the stack, one module each."""
