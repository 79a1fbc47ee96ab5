"""Preflight: what an endpoint, its path and this client can do, each finding with what it means and what to do."""
