"""The wires that the scripted agent speaks, one module for each; `catalogue` knows their names."""
