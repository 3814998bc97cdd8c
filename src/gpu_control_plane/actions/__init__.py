"""What people do with cards and pools: pure plans that say what they lead to, and one way to carry them out.

The commands and the console call the same ones.
"""
