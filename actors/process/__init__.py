"""One CLI process with one conversation: its launch, its clocks, its requests and its stop."""
