"""Operations: metrics, their Prometheus text, and health checks."""
