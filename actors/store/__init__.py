"""What a tree keeps beyond its own life: requests and their ends, and facts of its agents."""
