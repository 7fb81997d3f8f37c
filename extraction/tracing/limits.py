"""What tracing asks of its workers, for callers that start them before they import what tracing needs."""

TIMEOUT_S = 600.0
"""Wall time that one model may take, in seconds."""
MEMORY_MB = 8_192
"""Private memory that one model may take, in MiB."""
PREPARE = "extraction.tracing.trace_workers:prepare"
"""What the workers' server imports and warms up for tracing."""
