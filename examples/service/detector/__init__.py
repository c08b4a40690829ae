"""A service around a small model."""
