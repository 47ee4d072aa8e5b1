"""The wires that the scripted agent speaks, one module for each; `program` knows their names."""
