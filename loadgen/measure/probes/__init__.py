"""Probes: what a server and its host say about themselves, as plain numbers. Nothing here opens a socket of its own accord."""
