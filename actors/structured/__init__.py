"""Structured input and output: schemas, payloads, and answers that are checked and asked for again."""
