"""Experiments: arms of a server, repeated in balanced random order, prepared alike, and one verdict at the end."""
