"""loadgen: a load generator and trace replayer for agentic coding."""

__version__ = "0.1.0"
