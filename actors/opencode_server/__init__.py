"""One `opencode serve` process that many agents share."""
