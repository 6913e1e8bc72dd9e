"""Numerical methods that several hashers share. Nothing here depends on hashing."""
