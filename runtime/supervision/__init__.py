"""Supervisors: child specs become children, exits become decisions, decisions become restarts and stops."""
