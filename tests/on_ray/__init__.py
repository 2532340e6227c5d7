"""Tests on a real Ray."""
