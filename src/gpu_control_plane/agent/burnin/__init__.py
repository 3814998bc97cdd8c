"""Burn-in: tests a new card before it may be pooled."""
