"""Operating-system processes: started in a group of their own, read, stopped, tracked and cleaned up."""
