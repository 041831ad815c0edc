"""Engines behind the Policy protocol."""
