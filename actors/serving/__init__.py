"""Services for many requests: sessions, pools, completion models, and agents as tools."""
