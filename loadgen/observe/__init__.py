"""A run seen from outside: live figures, Prometheus metrics, OpenTelemetry spans. Nothing here touches a measurement."""
