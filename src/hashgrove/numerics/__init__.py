"""Numerical methods that several hashers share; nothing here knows of hashing."""
