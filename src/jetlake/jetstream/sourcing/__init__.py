"""Mirrors and sources: streams that copy others."""
