"""The checks, one module a subject. Each is a function of a `Patient` that yields findings and never raises for what a server does."""
